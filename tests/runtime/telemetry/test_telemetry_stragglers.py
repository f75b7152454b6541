"""Who is late to the communication waits least: the others' waits are measured, and the late one is named."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import Jobs

from runtime.place import Place
from runtime.telemetry.config import Alarms, Worth
from runtime.telemetry.digest import Digest
from runtime.telemetry.goodput import Started, Waited
from runtime.telemetry.journal import Journal, read
from runtime.telemetry.metrics import Metrics
from runtime.telemetry.record import Step, Waits
from runtime.telemetry.stragglers import OWN, Persistent, Row, row, together, waits

HERE = Path(__file__).parent
NODES = ["a", "a", "b", "b"]


def rows(*waited_ms: int, late_in: str = "forward", looked: int = 10) -> list[Row]:
    """Ten steps of a second of ranks that waited so long in all of them; the time that is left was spent in a phase."""
    parts = [[10_000_000 - each * 1000 if name == late_in else 0 for name in OWN] for each in waited_ms]
    return [Row(10, looked, each * 1000, 10_000_000, part) for each, part in zip(waited_ms, parts, strict=True)]


def test_the_rank_that_waits_least_is_the_slowest_and_the_mean_is_over_all_ranks() -> None:
    found = waits(rows(3000, 3000, 0, 3000, late_in="data"), NODES, 1, 10, 0)
    assert found is not None
    assert (found.rank, found.node, found.phase) == (2, "b", "data")
    assert found.waited_s == pytest.approx(3 * 3 / 4)
    assert found.share == pytest.approx(0.225)
    assert found.parts["data"] == pytest.approx((3 * 7 + 10) / 4)


def test_steps_that_were_not_looked_at_are_like_those_that_were() -> None:
    found = waits(rows(300, 300, 0, 300, looked=1), NODES, 1, 10, 0)
    assert found is not None
    assert found.waited_s == pytest.approx(10 * 0.3 * 3 / 4)


@pytest.mark.parametrize("silent", range(4))
def test_without_a_measurement_of_each_rank_nothing_is_known(silent: int) -> None:
    told = rows(300, 300, 0, 300)
    told[silent].looked = 0
    assert waits(told, NODES, 1, 10, 0) is None
    assert waits(rows(5), NODES, 1, 10, 0) is None  # one rank waits for nobody, and says nothing


@given(st.lists(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), min_size=1, max_size=4))
def test_spans_put_together_are_as_one_span(spans: list[list[int]]) -> None:
    whole = rows(*spans[0])
    for each in spans[1:]:
        whole = together(whole, rows(*each))
    assert [each.waited for each in whole] == [1000 * sum(each) for each in zip(*spans, strict=True)]
    assert [row(each.values()) for each in whole] == whole


def seen(node: str, share: float) -> Waits:
    return Waits(0, 1, 10, share, 1.0, {}, 3, node, None)


def test_an_alarm_names_a_node_that_stays_the_slowest_and_ends_when_it_is_not() -> None:
    alarms = Persistent(3)
    told = [alarms.see(seen(node, 0.2)) for node in "aababbb"]
    assert [each is not None and each.rings for each in told] == [False] * 6 + [True]
    told = [alarms.see(seen("b", 0.01)) for _ in range(4)]
    assert [None if each is None else each.rings for each in told] == [None, None, False, None]
    assert all(Persistent(3).see(seen("b", 0.01)) is None for _ in range(9))


def test_waits_are_in_the_journal_the_metrics_and_an_event(tmp_path: Path) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    metrics = Metrics(Place(), "r", Worth())
    digest = Digest(metrics, Alarms(persist=2), [], lambda event, /, **fields: events.append((event, fields)))
    journal = Journal(tmp_path / "j", Place(world=4, local_world=4), clock=lambda: 20.0)
    each = Waits(20 * 10**9, 1, 10, 2.5, 10.0, {"data": 1.0}, 3, "gpu-7", "data")
    journal.take([Step(10, 10**10, 2 * 10**10, {}), each])
    digest.take([each, each])
    journal.close()
    assert next(line for line in read(tmp_path / "j") if isinstance(line, Waited)) == Waited(
        at_s=20, first=1, last=10, seconds=2.5, parts={"data": 1.0}, rank=3, node="gpu-7", phase="data"
    )
    ((event, fields),) = events
    assert (event, fields["level"], fields["rank"], fields["node"]) == ("alarm.straggler", "warning", 3, "gpu-7")
    found = {sample.name: sample.value for metric in metrics.registry.collect() for sample in metric.samples}
    assert found["muster_straggler_seconds_total"] == 5
    assert found["muster_straggler_ratio"] == 0.25
    assert found["muster_straggler_rank"] == 3


def test_an_older_journal_is_read_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"kind":"started","at_s":1,"attempt":"a","world":4}\n{"kind":"waited","at_s":2}\n')
    assert [type(line) for line in read(tmp_path / "j")] == [Started]


def told(
    jobs: Jobs, folder: Path, late: int, phase: str, how: str, world: int, steps: int
) -> tuple[list[Waited], float]:
    """What a job's journal says of waits, and how long a late rank really was late in a step."""
    (folder / "run.yaml").write_text(
        json.dumps(
            {
                "steps": steps,
                "checkpoints": {"folder": "checkpoints"},
                "save": {"every_s": 3600},
                "telemetry": {"folder": "telemetry", "waits_every_s": 0.2, "alarms": {"persist": 1}},
            }
        )
    )
    codes, logs = jobs.run(HERE / "slow_rank.py", "run.yaml", str(late), phase, how, folder=folder, world=world)
    assert codes == [0] * world, logs
    said = re.findall(r"slept ([\d.]+)", logs[max(late, 0)])
    lines = [line for line in read(folder / "telemetry" / "goodput.jsonl") if isinstance(line, Waited)]
    assert lines, logs[0]
    return lines, float(said[0])


@pytest.mark.parametrize(("late", "phase"), [(1, "forward"), (0, "data"), (2, "data")])
def test_what_a_slow_rank_costs_the_others_is_in_the_journal(jobs: Jobs, tmp_path: Path, late: int, phase: str) -> None:
    lines, slept_s = told(jobs, tmp_path, late, phase, "by_hand", 3, 40)
    steps = sum(line.last - line.first + 1 for line in lines)
    assert [line.first for line in lines] == [
        1,
        *(line.last + 1 for line in lines[:-1]),
    ]  # each step once
    injected_s = slept_s * steps * 2 / 3  # two of three ranks wait
    assert 0.7 < sum(line.seconds for line in lines) / injected_s < 3
    assert [line.rank for line in lines].count(late) > len(lines) / 2
    assert [line.phase for line in lines].count(phase) > len(lines) / 2
    data_s = sum(line.parts.get("data", 0.0) for line in lines)
    assert data_s < slept_s * steps * 0.9  # a mean over ranks, not that of rank 0


def test_ranks_that_are_all_as_slow_wait_for_nobody(jobs: Jobs, tmp_path: Path) -> None:
    lines, slept_s = told(jobs, tmp_path, -1, "forward", "by_hand", 3, 40)
    steps = sum(line.last - line.first + 1 for line in lines)
    assert sum(line.seconds for line in lines) < 0.5 * slept_s * steps


def test_waits_that_hide_in_a_backward_pass_are_measured_too(jobs: Jobs, tmp_path: Path) -> None:
    lines, slept_s = told(jobs, tmp_path, 1, "forward", "wrapped", 2, 60)
    assert lines[0].first == 1
    assert {line.rank for line in lines} == {1}
    injected_s = slept_s * sum(line.last - line.first + 1 for line in lines) / 2
    assert 0.5 < sum(line.seconds for line in lines) / injected_s < 3
