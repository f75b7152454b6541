"""A lane: a bounded queue and a thread that carries what is put there to one receiver.

Whoever puts something never waits and never sees an error. A receiver that fails, hangs or is slow costs its own lane's
items, counted, and nothing else: not another lane's, and not the training step.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

BATCH = 512
LONGEST_PAUSE_S = 30.0


class Receiver(Protocol[T]):
    """What stands at the end of a lane. Both are called on the lane's own thread, and may raise or take their time."""

    def take(self, batch: list[T], /) -> None: ...

    def close(self) -> None: ...


Changed = Callable[[str, BaseException | None], None]
"""Is told a lane's name when its receiver begins to fail (why), and when it works again (None)."""


class Lane(Generic[T]):
    """Carries items to the receiver that `make` opens, on a thread of its own.

    `beat`: the receiver is called each period, also with an empty batch. A receiver that cannot be opened is tried
    again later. After a failure the lane pauses, longer each time; `tries` is how often a batch is offered.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Receiver[T]],
        *,
        limit: int = 8192,
        period_s: float = 0.5,
        beat: bool = False,
        tries: int = 1,
        changed: Changed = lambda _name, _why: None,
    ) -> None:
        self.name = name
        self._make, self._limit, self._period_s, self._beat, self._changed = make, limit, period_s, beat, changed
        self._tries = tries
        self._waiting: deque[T] = deque()
        self._held: list[T] = []
        self._offered = 0
        self._dropped = 0
        self._counting = threading.RLock()  # a signal's handler may interrupt the thread that holds it
        self._nudge = threading.Event()
        self._ending = False
        self._busy = False
        self._receiver: Receiver[T] | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{name}", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many items never reached the receiver."""
        return self._dropped

    def put(self, item: T) -> None:
        """Leaves an item. Drops it where too many wait, or after the end."""
        if self._ending or len(self._waiting) >= self._limit:
            self._drop(1)
            return
        self._waiting.append(item)

    def flush(self, limit_s: float) -> bool:
        """Waits until what was put is delivered or dropped, at most `limit_s`. False where it was not."""
        end = time.monotonic() + limit_s
        while self._waiting or self._busy:  # in this order: what is taken out is busy before it is
            if not self._thread.is_alive() or time.monotonic() >= end:
                return False
            self._nudge.set()
            time.sleep(0.002)
        return True

    def end(self) -> None:
        """Takes no more items; the thread delivers what waits, once, and ends. Returns at once."""
        self._ending = True
        self._nudge.set()

    def join(self, limit_s: float) -> bool:
        """Waits for the thread at most `limit_s`; then what waits counts as dropped. False where it still hangs."""
        self._thread.join(max(0.0, limit_s))
        hangs = self._thread.is_alive()
        left = len(self._waiting) + (len(self._held) if hangs else 0)
        self._waiting.clear()
        self._drop(left)
        return not hangs

    def _drop(self, count: int) -> None:
        with self._counting:
            self._dropped += count

    def _run(self) -> None:
        while True:
            ending = self._ending
            if not ending and (self._failures or not self._waiting):
                pause = min(LONGEST_PAUSE_S, 0.25 * 2**self._failures) if self._failures else self._period_s
                self._nudge.wait(pause)
                self._nudge.clear()
                ending = self._ending
            self._busy = True
            if not self._held:
                self._held = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if self._held or self._beat:
                self._deliver(last=ending)
            self._busy = bool(self._held)
            if ending and (self._failures or not self._waiting):
                break
        if self._receiver is not None:
            try:
                self._receiver.close()
            except Exception as why:  # whatever a receiver does is its lane's affair alone
                self._tell(why)

    def _deliver(self, last: bool) -> None:
        try:
            if self._receiver is None:
                self._receiver = self._make()
            self._receiver.take(self._held)
        except Exception as why:
            self._failures = min(self._failures + 1, 16)
            self._offered += 1
            if self._offered >= self._tries or last:
                self._drop(len(self._held))
                self._held, self._offered = [], 0
            if self._failures == 1:
                self._tell(why)
        else:
            self._held, self._offered = [], 0
            if self._failures:
                self._failures = 0
                self._tell(None)

    def _tell(self, why: BaseException | None) -> None:
        with contextlib.suppress(Exception):
            self._changed(self.name, why)
