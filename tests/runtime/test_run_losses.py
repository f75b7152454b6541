"""What a run of several ranks does about a loss that goes bad on one of them: all do the same, with the same data."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jobs import Jobs

from runtime.exits import Exit
from tests.runtime.test_run import STEPS, TINY, ended, events, finish, made, resumed_at


class Did(NamedTuple):
    """One pass of a step, as a rank says it."""

    step: int
    fed: str
    state: str
    accepted: bool


def did(log: str) -> list[Did]:
    found = re.findall(r"^did step=(\d+) fed=(\w+) (lr=\S+ scale=\S+) accepted=(\w+)$", log, re.MULTILINE)
    return [Did(int(step), fed, state, accepted == "True") for step, fed, state, accepted in found]


def told(log: str, *names: str) -> list[dict[str, Any]]:
    return [each for each in events(log) if each["event"] in names]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "job")


@pytest.fixture(scope="module")
def fed(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> list[dict[int, str]]:
    """What each of two ranks is fed in each step of a run in which nothing goes wrong."""
    codes, logs = jobs.run(TINY, "run.yaml", folder=made(tmp_path_factory.mktemp("fed") / "job"), world=2)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    return [{each.step: each.fed for each in did(log)} for log in logs]


@pytest.mark.parametrize(("fault", "why"), [("nan", "the loss is nan"), ("spike", "deviations above")])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_loss_that_is_bad_on_one_rank_is_skipped_on_all(
    jobs: Jobs, folder: Path, fed: list[dict[int, str]], fault: str, why: str, rank: int
) -> None:
    made(folder / "it", more="loss: {history: 8, spike: 1000}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "it", world=2, TINY_FAULT=f"{fault}:12:{rank}")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    assert ended(logs[0]) == ended(logs[1])
    for own, log in enumerate(logs):
        passes = did(log)
        assert [each.step for each in passes if not each.accepted] == [13]
        assert {each.step: each.fed for each in passes} == fed[own]  # the data goes on
        (skipped,) = told(log, "loss.skipped")
        assert (skipped["step"], skipped["bad_rank"]) == (13, rank)
        assert (why in skipped["reason"]) == (own == rank)


def test_bad_losses_on_one_rank_after_the_other_are_in_a_row_and_end_with_a_stop(
    jobs: Jobs, folder: Path, fed: list[dict[int, str]]
) -> None:
    """Skipped three times, gone back from twice, and then stopped for good, on both ranks alike."""
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=2, TINY_FAULT="nan:6-99:each")
    assert codes == [Exit.FAILED] * 2
    back, first, second, third = [*range(5, 7)], [*range(7, 11)], [*range(7, 15)], [*range(7, 19)]
    for own, log in enumerate(logs):
        passes = did(log)
        # The step at which the run stops is the eighteenth: it is asked about and not answered.
        assert [each.step for each in passes] == [*range(1, 7), *first, *back, *second, *back, *third[:-1]]
        assert all(each.fed == fed[own][each.step] for each in passes)
        assert {each.step for each in passes if each.accepted} == {*range(1, 7)}
        assert [(each["step"], each["left"]) for each in told(log, "loss.rolled_back")] == [(4, 9), (4, 13)]
        (failed,) = told(log, "failed")
        assert failed["kind"] == "loss"
        assert failed["text"].startswith("step 18: ")
        assert "after 2 roll-backs" in failed["text"]
    # What is bad was not saved, and the checkpoint before is what the next start has.
    assert finish(jobs, folder, 2).startswith("end steps=20 ")
    assert resumed_at(folder) == 4


def test_a_bad_stretch_that_ends_is_left_out_and_the_weights_are_those_of_skipping_it(
    jobs: Jobs, folder: Path, fed: list[dict[int, str]]
) -> None:
    patient = made(folder / "patient", more="loss: {skips: 9}\n")
    skipped = finish(jobs, patient, 2, TINY_FAULT="nan:6-10:1")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=2, TINY_FAULT="nan:6-10:1")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    passes = did(logs[1])
    assert [each.step for each in passes] == [*range(1, 11), *range(5, STEPS + 1)]
    assert [each.step for each in passes if not each.accepted] == [7, 8, 9, 10, 7, 8, 9, 10, 11]
    assert all(each.fed == fed[1][each.step] for each in passes)
    assert ended(logs[0]) == ended(logs[1]) == skipped


def test_after_going_back_scheduler_and_scaler_are_as_they_were_there(jobs: Jobs, folder: Path) -> None:
    """A loop that unscales and clips before it asks: a step that is left out must not break the next."""
    made(folder / "back", more="loss: {on_nan: roll_back}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "back", world=2, TINY_FAULT="nan:6:1", TINY_SCALER="1")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    for log in logs:
        passes = did(log)
        assert [each.step for each in passes] == [*range(1, 8), *range(5, STEPS + 1)]
        again = passes[7:10]
        assert again == passes[4:7]
        assert len({each.state for each in passes}) > 5  # both move
    skipped = finish(jobs, folder, 2, TINY_FAULT="nan:6:1", TINY_SCALER="1")
    assert ended(logs[0]) == skipped


@pytest.mark.parametrize("policy", ["skip", "roll_back"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_batch_that_is_left_out_leaves_no_trace_in_running_statistics(
    jobs: Jobs, folder: Path, policy: str, rank: int
) -> None:
    made(folder / "it", more=f"loss: {{on_nan: {policy}}}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "it", world=2, TINY_FAULT=f"input:6:{rank}", TINY_NORM="1")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    assert "loss.skipped" in logs[0]
    for log in logs:
        assert re.search(r"^statistics \w+ True$", log, re.MULTILINE), log[-500:]


def test_going_back_never_takes_away_the_last_checkpoint(jobs: Jobs, folder: Path) -> None:
    """Bad from the first step after it on, the only one is suspected; but without an older one a person has to look."""
    made(folder / "it", more="loss: {on_nan: roll_back}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "it", world=2, TINY_FAULT="nan:4-5:1")
    assert codes == [Exit.FAILED] * 2
    assert [each["step"] for each in told(logs[0], "loss.rolled_back")] == [4]
    assert "no checkpoint from before step 4" in json.dumps(told(logs[0], "failed"))
    assert finish(jobs, folder / "it", 2).startswith("end steps=20 ")
    assert resumed_at(folder / "it") == 4
