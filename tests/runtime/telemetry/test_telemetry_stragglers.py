"""Who is late to the communication waits least: the others' waits are measured, and the late one is named."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import Jobs
from outcomes import events

from runtime.control import Rows
from runtime.place import Place
from runtime.telemetry.config import Alarms, Worth
from runtime.telemetry.digest import Digest
from runtime.telemetry.goodput import Started, Waited
from runtime.telemetry.journal import Journal, read
from runtime.telemetry.metrics import Metrics
from runtime.telemetry.overlap import Communication
from runtime.telemetry.record import Step, Waits
from runtime.telemetry.stragglers import OWN, Persistent, Row, row, together, waits
from runtime.telemetry.waiting import Waiting

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
    told = [alarms.see(seen(node, 0.2)) for node in "bbbaaa"]
    assert [each is not None and each.rings for each in told] == [False, False, True, False, False, True]
    assert alarms.node == "a"
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
    assert (event, fields["level"], fields["slowest"], fields["node"]) == ("alarm.straggler", "warning", 3, "gpu-7")
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
    if late >= 0:
        rings = [each for each in events(logs[0]) if each["event"] == "alarm.straggler"]
        assert rings[0]["slowest"] == late, logs[0]
        assert rings[0]["node"]
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


def test_waits_count_also_where_the_slowest_is_another_in_each_step(jobs: Jobs, tmp_path: Path) -> None:
    lines, slept_s = told(jobs, tmp_path, -2, "forward", "by_hand", 3, 40)
    injected_s = slept_s * sum(line.last - line.first + 1 for line in lines) * 2 / 3
    assert 0.7 < sum(line.seconds for line in lines) / injected_s < 3


def test_waits_that_hide_in_a_backward_pass_are_measured_too(jobs: Jobs, tmp_path: Path) -> None:
    lines, slept_s = told(jobs, tmp_path, 1, "forward", "wrapped", 2, 60)
    assert lines[0].first == 1
    assert {line.rank for line in lines} == {1}
    injected_s = slept_s * sum(line.last - line.first + 1 for line in lines) / 2
    assert 0.5 < sum(line.seconds for line in lines) / injected_s < 3


class Alone:
    """Rank 0 of two, whose peer sends the same."""

    def __init__(self) -> None:
        self.place = Place(world=2, local_world=2, node="a")
        self.sent: list[tuple[int, ...]] = []

    def gather(self, value: bytes) -> list[bytes]:
        return [value, b"b"]

    def begin_rows(self, *values: int) -> Rows:
        self.sent.append(values)
        return Rows([values, (*values[:2], 0, *values[3:])])


def a_step(number: int, talked_s: float | None, hidden: float | None = None) -> Step:
    parts = {} if talked_s is None else {"communication": round(talked_s * 1e9)}
    overlap = None if hidden is None else Communication(1.0, hidden)
    return Step(number, (number - 1) * 10**9, number * 10**9, parts, communication=overlap)


def test_steps_that_were_undone_are_not_told_and_every_rank_sends_at_the_same_steps() -> None:
    told: list[Waits] = []
    peers = Alone()
    waiting = Waiting(3.0, peers, told.append, by_phase=True)  # type: ignore[arg-type]
    for number in range(1, 5):
        waiting.done(number, a_step(number, 0.5))
        waiting.heard(number, 1.0, 0.1)
    assert [values[0] for values in peers.sent] == [3]
    waiting.done(5, a_step(5, 0.5))
    waiting.back()  # to step 2, before the agreement on step 5 was read
    waiting.heard(5, 1.0, 0.1)
    for number in range(3, 6):
        waiting.done(number, a_step(number, 0.5))
        waiting.heard(number, 1.0, 0.1)
    waiting.close()
    assert [(each.first, each.last) for each in told] == [(1, 3), (3, 5)]
    assert told[1].waited_s == pytest.approx(3 * 0.4 / 2)
    assert told[1].node == "b"


def test_a_step_that_is_done_again_is_not_measured_by_the_agreement_on_the_undone_one() -> None:
    peers = Alone()
    waiting = Waiting(3.0, peers, lambda _: None, by_phase=True)  # type: ignore[arg-type]
    for number in range(1, 3):
        waiting.done(number, a_step(number, 0.5))
        waiting.heard(number, 1.0, 0.5)
    waiting.done(3, a_step(3, 0.5))
    waiting.back()  # to step 2, before the agreement on step 3 was read
    for number in range(3, 6):  # each agreement is read a step later
        waiting.done(number, a_step(number, 0.5))
        waiting.heard(max(3, number - 1), 1.0, 0.1 if number == 3 else 0.5)
    waiting.done(6, a_step(6, 0.5))
    waiting.heard(5, 1.0, 0.5)
    steps, _, waited, *_ = peers.sent[0]
    assert (steps, waited) == (3, 0)


def test_without_a_phase_or_a_sample_steps_are_not_looked_at_and_the_next_sample_stands_for_them() -> None:
    told: list[Waits] = []
    peers = Alone()
    waiting = Waiting(2.0, peers, told.append, by_phase=False)  # type: ignore[arg-type]
    for number in range(1, 7):
        hidden = 0.3 if number == 5 else None
        talked_s = waiting.done(number, a_step(number, 0.9, hidden))  # the phase has not all of it
        assert talked_s == hidden
        waiting.heard(number, 1.0, None if hidden is None else 0.1)
    assert told == []
    waiting.close()
    assert [(each.first, each.last) for each in told] == [(1, 6)]
    assert told[0].waited_s == pytest.approx(6 * 0.2 / 2)
