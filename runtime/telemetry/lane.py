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
    again later. After a failure the lane pauses, longer each time.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Receiver[T]],
        *,
        limit: int = 8192,
        period_s: float = 0.25,
        beat: bool = False,
        changed: Changed = lambda _name, _why: None,
    ) -> None:
        self.name = name
        self._make, self._limit, self._period_s, self._beat, self._changed = make, limit, period_s, beat, changed
        self._waiting: deque[T] = deque()
        self._dropped = 0
        self._counting = threading.RLock()  # a signal's handler may interrupt the thread that holds it
        self._nudge = threading.Event()
        self._ending = False
        self._idle = threading.Event()
        self._idle.set()
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
        while self._waiting or not self._idle.is_set():
            self._nudge.set()
            if not self._thread.is_alive() or time.monotonic() >= end:
                return not self._waiting
            time.sleep(0.002)
        return True

    def end(self) -> None:
        """Takes no more items; the thread delivers what waits, once, and ends. Returns at once."""
        self._ending = True
        self._nudge.set()

    def join(self, limit_s: float) -> bool:
        """Waits for the thread at most `limit_s`; then what waits counts as dropped. False where it still hangs."""
        self._thread.join(max(0.0, limit_s))
        left = len(self._waiting)
        if left:
            self._waiting.clear()
            self._drop(left)
        return not self._thread.is_alive()

    def _drop(self, count: int) -> None:
        with self._counting:
            self._dropped += count

    def _run(self) -> None:
        while True:
            ending = self._ending
            pause = min(LONGEST_PAUSE_S, 0.5 * 2**self._failures) if self._failures else self._period_s
            if not ending and (self._failures or not self._waiting):
                self._nudge.wait(pause)
                self._nudge.clear()
                ending = self._ending
            batch = self._batch()
            if batch or (self._beat and not self._failures) or self._failures or ending:
                self._deliver(batch, ending)
            self._idle.set()
            if ending and (self._failures or not self._waiting):
                break
        if self._receiver is not None:
            try:
                self._receiver.close()
            except Exception as why:
                self._tell(why)

    def _batch(self) -> list[T]:
        self._idle.clear()
        batch: list[T] = []
        while self._waiting and len(batch) < BATCH:
            batch.append(self._waiting.popleft())
        return batch

    def _deliver(self, batch: list[T], ending: bool) -> None:
        try:
            if self._receiver is None:
                if ending and not batch:
                    return
                self._receiver = self._make()
            if batch or self._beat:
                self._receiver.take(batch)
        except Exception as why:  # whatever a receiver does is its lane's affair alone
            self._drop(len(batch))
            self._failures += 1
            if self._failures == 1:
                self._tell(why)
        else:
            if self._failures:
                self._failures = 0
                self._tell(None)

    def _tell(self, why: BaseException | None) -> None:
        with contextlib.suppress(Exception):
            self._changed(self.name, why)
