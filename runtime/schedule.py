"""At which steps a run saves, the same on every rank."""

import time
from collections.abc import Callable

from runtime.checkpoint.triggers import Progress, Triggers, due
from runtime.control import Control, Pending


class Schedule:
    """Decides at each boundary. What the steps say, every rank knows by itself; what clocks say, rank 0 tells the rest:
    it is asked at one boundary and heard at the next, so that no step waits for it.

    The deadline is the stop's matter: it saves before it leaves.
    """

    def __init__(
        self, triggers: Triggers, control: Control, step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._control = clock, control
        self._by_steps = Triggers(every_steps=triggers.every_steps)
        self._by_time = triggers.model_copy(update={"every_steps": None})
        self._timed = triggers.every_s is not None or triggers.by_failures
        self._pending: Pending | None = None
        self._saved_step, self._saved_s = step, clock()
        self.failures, self.observed_s = 0, 0.0
        """How often the job has failed in so many seconds, as rank 0 knows it."""
        self.stall_s, self.save_s = 0.0, 0.0
        """How long the last save held the training up, and how long it took until it was committed."""

    def due(self, step: int) -> bool:
        """Whether to save after `step`. Every rank asks once a step. Raises PeerLostError."""
        now = self._clock()
        answer = bool(due(self._by_steps, self._progress(step, now)))
        if self._timed:
            if self._pending is not None:
                answer |= bool(self._pending.wait()[0])
            asks = self._control.place.leads and not answer and due(self._by_time, self._progress(step, now))
            self._pending = self._control.begin_highest(int(bool(asks)))
        return answer and step > self._saved_step

    def saved(self, step: int, stall_s: float) -> None:
        """Notes a save that has begun."""
        self._saved_step, self._saved_s = step, self._clock()
        self.stall_s = stall_s

    def back(self, step: int) -> None:
        """Notes that the run went back to a step."""
        self._saved_step = step

    def _progress(self, step: int, now: float) -> Progress:
        return Progress(
            step=step,
            now_s=now,
            saved_step=self._saved_step,
            saved_s=self._saved_s,
            stall_s=self.stall_s,
            save_s=self.save_s,
            failures=self.failures,
            observed_s=self.observed_s,
        )
