"""How long this rank waits for the slowest in each step, and how rank 0 learns it of all. On the training thread.

No step waits for it. The shortest time in communication rides on the agreement that each step has anyway; the sums go
to rank 0 every half minute, and are read when they are there.
"""

import time
from collections.abc import Callable

from runtime.control import Control, Rows
from runtime.telemetry.record import Step, Waits
from runtime.telemetry.stragglers import Row, row, together, waits

NODE_BYTES = 128
"""Of a node's name."""
MOST_STEPS = 100_000
"""Between two tellings, where steps are so short that their time counts as none."""


class Waiting:
    """Made by every rank at the same place. `by_phase`: whether the phase `communication` has all of it.

    It has not where DistributedDataParallel hides communication in the backward pass, nor on a GPU, where it goes on
    behind the training thread. There only what that class measures counts, in each hundredth step; on a GPU it does so
    with events on the device.
    """

    def __init__(
        self,
        every_s: float,
        control: Control,
        tell: Callable[[Waits], None],
        by_phase: bool,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._every_s, self._control, self._tell = every_s, control, tell
        self._by_phase, self._clock_ns = by_phase, clock_ns
        self._on = every_s > 0 and control.place.world > 1
        names = control.gather(control.place.node.encode()[:NODE_BYTES]) if self._on else []
        self._nodes = [each.decode(errors="replace") for each in names]
        self._done: dict[int, tuple[Step, float | None] | None] = {}
        self._undone = -1
        """The step that was undone before its agreement was read: it may be done again by then."""
        self._began = False
        self._row, self._spent_s = Row(), 0.0
        self._first: int | None = None
        self._pending: tuple[Rows, int, int] | None = None
        self._unlooked: tuple[list[Row], int] | None = None
        """All rows since a step, in which no step was looked at on all ranks yet; on rank 0."""

    def done(self, number: int, step: Step | None) -> float | None:
        """Takes a step of this rank; its time in communication that it waited for, in seconds, where it is known."""
        if not self._on:
            return None
        # The first step of a start is like no other: ranks come to it from loading, and buckets are made.
        talked_s = self._talked_s(step) if step is not None and self._began else None
        self._began = True
        self._done = {each: kept for each, kept in self._done.items() if each >= number - 2}
        self._done[number] = None if step is None else (step, talked_s)
        return talked_s

    def heard(self, number: int, step_s: float, least_s: float | None) -> None:
        """Takes what all ranks know of a step, in the same order on each. Raises PeerLostError."""
        if number not in self._done or number <= self._undone:  # undone meanwhile, on all ranks
            self._undone = -1
            return
        self._look()
        own = self._done.pop(number)
        self._first = number if self._first is None else self._first
        self._row.steps += 1
        if own is not None:
            step, talked_s = own
            self._row.add(step)
            if talked_s is not None and least_s is not None:
                self._row.looked += 1
                self._row.waited += max(0, round((talked_s - least_s) * 1e6))
        self._spent_s += step_s
        # Decided by what is the same on all ranks, and by nothing else: it is a collective.
        if self._spent_s >= self._every_s or self._row.steps >= MOST_STEPS:
            self._look(wait=True)
            self._pending = (self._control.begin_rows(*self._row.values()), self._first, number)
            self._anew()

    def back(self) -> None:
        """Forgets what was not told yet: the steps are undone, on all ranks."""
        self._undone = max(self._done, default=-1)
        self._done.clear()
        self._unlooked = None
        self._anew()

    def close(self) -> None:
        """Tells what has arrived. Never raises, and never waits."""
        try:
            self._look()
        except Exception:  # the end of a job that lost a peer
            self._pending = None

    def _anew(self) -> None:
        self._row, self._spent_s, self._first = Row(), 0.0, None

    def _talked_s(self, step: Step) -> float | None:
        named = step.parts.get("communication")
        if self._by_phase:
            return None if named is None else named / 1e9
        return None if step.communication is None else step.communication.exposed_s

    def _look(self, wait: bool = False) -> None:
        """Reads what has arrived. With `wait` it is a whole interval old, and waits for nothing but a lost peer."""
        if self._pending is None or not (wait or self._pending[0].here):
            return
        (rows, first, last), self._pending = self._pending, None
        found = [row(each) for each in rows.wait()]
        if not found:
            return
        if self._unlooked is not None:
            before, first = self._unlooked
            found = together(before, found)
        made = waits(found, self._nodes, first, last, self._clock_ns())
        self._unlooked = (found, first) if made is None else None
        if made is not None:
            self._tell(made)
