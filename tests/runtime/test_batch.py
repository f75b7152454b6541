"""One training at any number of ranks: the same samples in each step, and a learning rate that fits the batch."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jobs import Jobs
from torch.utils.data import DataLoader

from runtime.batch import BatchConfig, share
from runtime.config import ConfigError, load
from runtime.data import Batches, adopt
from runtime.exits import Exit
from runtime.gather import Gather
from runtime.order import DataError
from runtime.place import Place
from runtime.run import Run

SCRIPT = Path(__file__).with_name("elastic_training.py")
CONFIG = """
steps: {steps}
seed: 3
batch: {{batch: 8, micro: 2}}
checkpoints: {{folder: saved, claim_limit_s: 20}}
save: {{every_steps: {every}}}
telemetry: {{console: json, hardware_every_s: 0}}
stops: {{margin_s: 0, teardown_s: 2}}
control_s: 20
restarts: {{wait_s: 0}}
"""


def made(folder: Path, steps: int, every: int = 10, quick: bool = True) -> Path:
    folder.mkdir()
    (folder / "run.yaml").write_text(CONFIG.format(steps=steps, every=every))
    if quick:
        (folder / "quick").touch()
    return folder


def fed(folder: Path) -> dict[int, list[int]]:
    """The samples of each step in the global order, whatever ranks took them: the same whenever a step was done.

    A step that not all ranks came to note, since one was killed, is left out.
    """
    done: dict[tuple[int, int], dict[int, list[list[int]]]] = {}
    for file in (folder / "fed").iterdir():
        for line in file.read_text().splitlines():
            told = json.loads(line)
            ranks = done.setdefault((told["step"], told["world"]), {})
            assert ranks.setdefault(told["rank"], told["fed"]) == told["fed"]
    found: dict[int, list[int]] = {}
    for (step, world), ranks in sorted(done.items()):
        if len(ranks) == world:
            samples = [sample for rank in range(world) for micro in ranks[rank] for sample in micro]
            assert found.setdefault(step, samples) == samples
    return found


def rates(folder: Path) -> dict[int, tuple[int, float]]:
    """The number of ranks and the learning rate of each step."""
    told = [json.loads(line) for file in (folder / "fed").iterdir() for line in file.read_text().splitlines()]
    return {each["step"]: (each["world"], each["rate"]) for each in told if each["rank"] == 0}


def came_to(log: str) -> str:
    (found,) = set(re.findall(r"^end .*$", log, re.MULTILINE))
    return str(found)


def told(log: str, event: str) -> list[dict[str, Any]]:
    """Events of that name in the order in which they were told."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"')]
    return [each for each in lines if each["event"] == event]


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 256))
def test_at_any_world_size_the_batch_is_the_nearest_and_the_rate_follows_it(batch: int, micro: int, world: int) -> None:
    found = share(BatchConfig(batch=batch, micro=micro), world)
    assert found.batch == found.accumulate * micro * world
    assert found.rate == pytest.approx(found.batch / batch)
    if batch % (micro * world) == 0:
        assert found.batch == batch
        assert found.rate == 1.0
    if found.accumulate > 1:
        assert abs(found.batch - batch) <= abs(found.batch - micro * world - batch)


class Counting:
    """Data that is read in order."""

    def begin(self, position: int) -> Iterator[int]:
        return itertools.count(position)


@pytest.mark.parametrize("source", [range(50), Counting()], ids=["indexed", "sequential"])
@pytest.mark.parametrize("workers", [0, 3])
def test_a_step_has_the_same_samples_in_the_same_order_at_any_number_of_ranks(source: Any, workers: int) -> None:
    """What comes to a step of each rank is whole micro-batches, in turn, also from several workers."""
    config = BatchConfig(batch=24, micro=2)
    found = []
    for world in (1, 2, 3, 4, 6, 12):
        steps: list[list[int]] = [[] for _ in range(7)]
        for rank in range(world):
            batches = Batches(source, config, seed=5, place=Place(rank=rank, world=world), workers=workers)
            assert (batches.batch, batches.parts) == (24, 12 // world)
            stream = batches.until(None)
            for step in steps:
                for _ in range(batches.parts):
                    micro = next(stream).tolist()
                    assert len(micro) == 2
                    step += micro
                batches.used()
            assert batches.consumed == 7 * 24
        found.append(steps)
    assert all(each == found[0] for each in found)


@given(consumed=st.integers(0, 200), world=st.sampled_from([1, 2, 4]))
def test_an_epoch_ends_with_a_whole_step(consumed: int, world: int) -> None:
    for rank in range(world):
        place = Place(rank=rank, world=world)
        batches = Batches(range(50), BatchConfig(batch=8, micro=2), place=place)
        batches.consumed = consumed
        expected = len(batches)
        taken = sum(1 for _ in batches)
        assert taken == expected
        assert taken % batches.parts == 0
        assert batches.used() % 8 == 0
        assert batches.epoch == consumed // 50 + 1


def test_what_does_not_fit_together_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    config = {"checkpoints": {"folder": str(tmp_path)}, "batch": {"batch": 16, "micro": 4}}
    model = torch.nn.Linear(1, 1)
    with pytest.raises(DataError, match=r"batch_size 8, but batch\.micro is 4"):
        Run(config, model=model, data=DataLoader(range(50), batch_size=8))  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match=r"steps of 16 samples and 1 micro-batches .* 16 and 4 · make it with the run's"
    ):
        Run(config, model=model, data=Batches(range(50), 16))
    plain = {"checkpoints": {"folder": str(tmp_path)}}
    with pytest.raises(DataError, match=r"16 samples and 4 micro-batches on a rank, but the run's are of 16 and 1"):
        Run(plain, model=model, data=Batches(range(50), BatchConfig(batch=16, micro=4)))
    with pytest.raises(ConfigError, match=r"batch\.micro: missing · add it\nbatch\.size: no such key"):
        load({**plain, "batch": {"batch": 3, "size": 3}})
    assert not list(tmp_path.iterdir())


def test_a_loader_of_micro_batches_is_taken() -> None:
    loader = DataLoader(range(50), batch_size=4)  # type: ignore[arg-type]
    found = adopt(loader, place=Place(rank=1, world=2), batch=BatchConfig(batch=16, micro=4))
    assert [each.tolist() for each in itertools.islice(found, 2)] == [[8, 9, 10, 11], [12, 13, 14, 15]]


def test_a_step_that_is_not_whole_is_an_error_and_none_where_the_loop_decides() -> None:
    model = torch.nn.Linear(1, 1)
    gather = Gather(3, model)
    seen = []
    for _ in range(3):
        gather.take()
        seen.append(gather.more)
    assert seen == [True, True, False]
    gather.end()
    gather.end()  # a loop that makes its own data
    gather.end(3)  # a framework that counts by itself
    for taken in (1, 2, 4):
        with pytest.raises(RuntimeError, match=f"a step of {taken} micro-batches, but the batch is made up of 3"):
            gather.end(taken)
    gather.take()
    with pytest.raises(RuntimeError, match="a step of 1 micro-batches"):
        gather.end()
    free = Gather(None, model)
    for _ in range(5):
        free.take()
        assert not free.more
    free.end()


def test_four_and_two_ranks_come_to_the_same_weights_bit_for_bit_and_one_close_to_them(
    jobs: Jobs, tmp_path: Path
) -> None:
    ends, orders = [], []
    for world in (4, 2, 1):
        folder = made(tmp_path / str(world), steps=20)
        codes, logs = jobs.run(SCRIPT, "run.yaml", folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        (began,) = told(logs[0], "run.began")
        assert (began["batch"], began["accumulate"]) == (8, 4 // world)
        assert "batch.not_kept" not in logs[0]
        ends.append(came_to("\n".join(logs)))
        orders.append(fed(folder))
    assert orders[0] == orders[1] == orders[2]
    assert sorted(sample for step in range(1, 7) for sample in orders[0][step]) == list(range(48))
    assert ends[0] == ends[1]
    # One rank adds four micro-batches up one after another, which rounds differently: (((a + b) + c) + d).
    sums = [float(each.rpartition("=")[2]) for each in ends]
    assert sums[2] == pytest.approx(sums[0], rel=1e-5)


def test_where_the_batch_cannot_be_kept_the_rate_follows_and_the_log_says_so(jobs: Jobs, tmp_path: Path) -> None:
    """Four ranks, then three, then four: no factor is left over, and none is applied twice."""
    folder = made(tmp_path / "run", steps=5)
    for world, steps in ((4, 5), (3, 10), (3, 15), (4, 20)):
        codes, logs = jobs.run(SCRIPT, "run.yaml", "--set", f"steps={steps}", folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        changes = told(logs[0], "batch.not_kept")
        if world == 4:
            assert not changes
            continue
        (change,) = changes
        assert (change["asked"], change["batch"], change["factor"], change["scale"]) == (8, 6, 0.75, "linear")
        assert change["rates"] == [pytest.approx(0.75 * 0.01 * 0.999 ** (steps - 5))]
    for step, (world, rate) in rates(folder).items():
        assert rate == pytest.approx((0.75 if world == 3 else 1.0) * 0.01 * 0.999 ** (step - 1)), step
    line = [sample for _, samples in sorted(fed(folder).items()) for sample in samples]
    assert len(line) == 5 * 8 + 10 * 6 + 5 * 8
    for epoch in range(2):
        assert sorted(line[epoch * 48 : (epoch + 1) * 48]) == list(range(48))
