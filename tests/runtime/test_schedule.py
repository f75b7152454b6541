"""When a run saves: the same on every rank, whatever their clocks say."""

from typing import Any

from runtime.checkpoint.triggers import Triggers
from runtime.control import Control, Pending
from runtime.place import Place
from runtime.schedule import Schedule


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Shared(Control):
    """Two ranks in one process: an agreement ends when both have begun it."""

    def __init__(self, rank: int, asked: list[list[int]]) -> None:
        self.place, self._asked, self._at = Place(rank=rank, world=2), asked, 0

    def begin_highest(self, *values: int) -> Pending:
        if len(self._asked) <= self._at:
            self._asked.append([])
        votes = self._asked[self._at]
        votes.extend(values)
        self._at += 1

        class Later(Pending):
            def wait(self) -> tuple[int, ...]:
                assert len(votes) == 2
                return (max(votes),)

        return Later(())


def saves(triggers: Triggers, steps: int, clock: Any = None, begin: int = 0) -> list[int]:
    clock = clock or Clock()
    schedule, found = Schedule(triggers, Control(Place()), begin, clock), []
    for step in range(begin + 1, begin + steps + 1):
        clock.now += 1
        if schedule.due(step):
            schedule.saved(step, 0.1)
            found.append(step)
    return found


def test_by_steps() -> None:
    assert saves(Triggers(every_steps=4), 12) == [4, 8, 12]
    assert saves(Triggers(every_steps=4), 6, begin=6) == [8, 12]


def test_by_time_and_by_both() -> None:
    assert saves(Triggers(every_s=5), 12) == [6, 12]  # asked at one boundary, heard at the next
    assert saves(Triggers(every_s=5, every_steps=8), 16) == [6, 8, 14, 16]


def test_without_a_trigger_never() -> None:
    assert saves(Triggers(), 50) == []


def test_by_failures_from_the_measured_stall() -> None:
    """Young: the root of twice a stall of 0.1 s times 500 s between failures is 10 s; the first has no stall yet."""
    clock = Clock()
    schedule = Schedule(Triggers(by_failures=True, between_failures_s=500, least_s=1), Control(Place()), 0, clock)
    schedule.saved(1, 0.1)
    found = []
    for step in range(2, 30):
        clock.now += 1
        if schedule.due(step):
            schedule.saved(step, 0.1)
            found.append(step)
    assert found == [12, 23]


def test_ranks_whose_clocks_differ_save_at_the_same_steps() -> None:
    clocks, asked = [Clock(), Clock()], list[list[int]]()
    ranks = [Schedule(Triggers(every_s=5), Shared(rank, asked), 0, clocks[rank]) for rank in range(2)]
    found: list[list[int]] = [[], []]
    for step in range(1, 40):
        for rank, each in enumerate(ranks):
            clocks[rank].now += 1.0 + 0.3 * rank * (step % 3)
            if each.due(step):
                each.saved(step, 0.1)
                found[rank].append(step)
    assert found[0] == found[1]
    assert len(found[0]) >= 5
