"""What the Stopper decides, over ranks that are threads and agree through a table."""

import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.control import Control, PeerLostError
from runtime.exits import Exit
from runtime.place import Place
from runtime.stops import stop as module
from runtime.stops.deadline import Deadline
from runtime.stops.signals import STOPPING, Signals
from runtime.stops.stop import PEER_DONE, DesyncError, Stop, StopConfig, Stopper


@dataclass
class Table:
    """Where the ranks' values meet: the n-th of each with the n-th of all others."""

    world: int
    limit_s: float = 5.0
    rounds: list[list[tuple[int, ...]]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, turn: int, values: tuple[int, ...]) -> None:
        with self.changed:
            while len(self.rounds) <= turn:
                self.rounds.append([])
            self.rounds[turn].append(values)
            self.changed.notify_all()

    def get(self, turn: int) -> tuple[int, ...]:
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.rounds[turn]) == self.world, self.limit_s):
                raise PeerLostError("a rank did not come")
            return tuple(max(column) for column in zip(*self.rounds[turn], strict=True))


class TableControl(Control):
    """Control over a Table."""

    def __init__(self, place: Place, table: Table) -> None:
        self.place, self.table, self.turn = place, table, 0

    def begin_highest(self, *values: int) -> Any:
        turn, self.turn = self.turn, self.turn + 1
        self.table.put(turn, values)
        return type("Pending", (), {"wait": lambda _: self.table.get(turn)})()


class Quiet(Signals):
    """Signals that the test says came, at a time of its clock."""

    def say(self, number: int, at: float) -> None:
        self._at[number] = at


@dataclass
class Rank:
    """One rank of a test's job. `clock` is moved by the test."""

    stopper: Stopper
    signals: Quiet
    events: list[tuple[str, dict[str, Any]]]
    clock: list[float]


def ranks(world: int, config: StopConfig | None = None, limit_s: float = 5.0, **more: Any) -> list[Rank]:
    table, found = Table(world, limit_s), []
    for rank in range(world):
        place, signals, clock = Place(rank=rank, world=world), Quiet(), [1000.0]
        events: list[tuple[str, dict[str, Any]]] = []
        stopper = Stopper(
            config or StopConfig(grace_s=30),
            place,
            TableControl(place, table),
            lambda event, events=events, /, **fields: events.append((event, fields)),  # type: ignore[misc]
            signals,
            clock=lambda clock=clock: clock[0],  # type: ignore[misc]
            **more,
        )
        found.append(Rank(stopper, signals, events, clock))
    return found


def together(loops: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs each rank's loop in a thread; what each returned or raised."""
    results: list[Any] = [None] * len(loops)

    def run(index: int) -> None:
        try:
            results[index] = loops[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(loops))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()
    return results


def loop(rank: Rank, steps: int, came: dict[int, int], step_s: float = 0.1) -> Callable[[], Stop | None]:
    """Steps 1 to `steps`; the signals of `came` (number: step) arrive during their steps."""

    def run() -> Stop | None:
        for step in range(1, steps + 1):
            rank.clock[0] += step_s
            for number, at in came.items():
                if at == step:
                    rank.signals.say(number, rank.clock[0])
            if found := rank.stopper.at_boundary(step):
                return found
        return None

    return run


numbers = st.sampled_from([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
plans = st.lists(st.dictionaries(numbers, st.integers(1, 12), max_size=3), min_size=1, max_size=4)


@given(plans, st.sampled_from([0.01, 0.5, 2.0]))
def test_all_ranks_stop_at_the_same_step_for_the_same_reasons_at_most_one_step_late(
    plan: list[dict[signal.Signals, int]], step_s: float
) -> None:
    job = ranks(len(plan))
    stops = together([loop(rank, 12, came, step_s) for rank, came in zip(job, plan, strict=True)])  # type: ignore[arg-type]
    assert all(each == stops[0] for each in stops)
    first = min((step for came in plan for step in came.values()), default=None)
    if first is None:
        assert stops[0] is None
    elif stops[0] is None:
        assert first == 12  # the last boundary's agreement is never read: the work is done
    else:
        assert first <= stops[0].step <= first + 1
        assert set(stops[0].reasons) <= {number.name for came in plan for number in came}


@pytest.mark.parametrize("world", [1, 3])
def test_long_steps_do_not_wait_a_step_for_their_agreement(world: int) -> None:
    job = ranks(world)
    stops = together([loop(rank, 9, {signal.SIGUSR1: 5}, module.AT_ONCE_S * 2) for rank in job])
    assert [each.step for each in stops] == [5] * world


def test_the_least_time_left_on_any_rank_decides_whether_a_save_fits() -> None:
    for left_s, saves in ((60.0, True), (20.0, False)):
        job = ranks(2, StopConfig(grace_s=60.0, save_s=40.0, teardown_s=5.0))
        job[1].signals.say(signal.SIGTERM, job[1].clock[0] - (60.0 - left_s))
        stops = together([loop(rank, 3, {}) for rank in job])
        assert [each.save for each in stops] == [saves] * 2
        assert stops[0].left_s == pytest.approx(left_s, abs=0.2)
        assert any(event == "stop.grace_too_short" for event, _ in job[0].events) is not saves


def test_signals_ahead_of_a_deadline_set_no_limit_of_their_own() -> None:
    job = ranks(1, StopConfig(grace_s=1.0, save_s=1000.0))
    job[0].signals.say(signal.SIGUSR1, job[0].clock[0])
    assert loop(job[0], 3, {})() == Stop(1, ("SIGUSR1",), None, save=True)


def test_a_deadline_stops_in_time_for_the_slowest_save_and_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 50_000.0)
    job = ranks(
        2, StopConfig(grace_s=30, save_s=0.0, teardown_s=5, margin_s=10), until=Deadline(at=50_100.0, source="test")
    )
    job[1].stopper.saved(40.0)
    stops = together([loop(rank, 100, {}, 2.0) for rank in job])
    # 100 s - 1.5 * 40 (save) - 2 * 2 (steps) - 5 - 10 = 21 s of steps of 2 s.
    assert [each.step for each in stops] == [11, 11]
    assert stops[0].reasons == ("deadline",)
    assert stops[0].save


def test_a_rank_wants_to_stop_for_a_signal_when_asked_and_when_its_deadline_nears_but_not_for_knowing_one() -> None:
    def rank(at: float) -> Rank:
        return ranks(1, StopConfig(teardown_s=5, margin_s=10), until=Deadline(at=time.time() + at, source="test"))[0]

    assert rank(10).stopper.wanted
    far = rank(1000)
    assert not far.stopper.wanted
    far.stopper.ask()
    assert far.stopper.wanted
    for number in STOPPING:
        far = rank(1000)
        far.signals.say(number, far.clock[0])
        assert far.stopper.wanted


def test_a_rank_that_is_done_before_the_others_stops_them_and_none_waits_for_a_limit() -> None:
    job = ranks(3, limit_s=20.0)
    meet = threading.Barrier(2)

    def done(rank: Rank) -> Exit:
        loop(rank, 4, {})()
        return rank.stopper.finish(Exit.DONE)

    def longer(rank: Rank) -> tuple[Stop | None, Exit]:
        found = loop(rank, 9, {})()
        meet.wait(10)
        return found, rank.stopper.finish(Exit.DONE)

    results = together([lambda: done(job[0]), lambda: longer(job[1]), lambda: longer(job[2])])
    assert results[0] is Exit.DONE
    for found, exit in results[1:]:
        assert found.reasons == (PEER_DONE,)
        assert not found.save
        assert exit is Exit.DONE


def test_all_ranks_leave_with_the_worst_code_of_those_that_could_meet() -> None:
    job = ranks(3)
    codes = [Exit.DONE, Exit.RESUMABLE_STOP, Exit.DONE]
    results = together([lambda r=r, c=c: r.stopper.finish(c) for r, c in zip(job, codes, strict=True)])  # type: ignore[misc]
    assert results == [Exit.RESUMABLE_STOP] * 3


def test_a_peer_that_never_comes_does_not_keep_the_others_beyond_the_limit() -> None:
    job = ranks(2, StopConfig(grace_s=30, meeting_s=0.2), limit_s=30.0)
    assert job[0].stopper.finish(Exit.RESUMABLE_STOP) is Exit.RESUMABLE_STOP
    assert job[0].events[0][0] == "stop.peer_missing"


def test_a_rank_that_failed_does_not_wait_for_its_peers() -> None:
    job = ranks(2, StopConfig(grace_s=30, meeting_s=1000.0), limit_s=1000.0)
    assert job[0].stopper.finish(Exit.FAILED) is Exit.FAILED
    assert not job[0].stopper.control.table.rounds  # type: ignore[attr-defined]


def test_ranks_at_different_steps_are_told_so_and_do_not_stop_as_if_they_agreed() -> None:
    job = ranks(2)
    results = together([lambda: job[0].stopper.at_boundary(7), lambda: job[1].stopper.at_boundary(8)])
    assert all(isinstance(each, DesyncError) and "from 7 to 8" in str(each) for each in results)


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, 1e300])
def test_a_time_that_is_none_ends_no_step(odd: float) -> None:
    found = ranks(2)
    for each in found:
        each.stopper.saved(odd)
    told = together([lambda each=each: each.stopper.at_boundary(1, True, talked_s=odd) for each in found])  # type: ignore[misc]
    assert told == [None, None]


def test_after_the_agreement_every_boundary_says_stop() -> None:
    job = ranks(1)
    job[0].stopper.ask()
    found = job[0].stopper.at_boundary(3)
    assert found is not None
    assert found.reasons == ("asked",)
    assert job[0].stopper.at_boundary(4) is found
