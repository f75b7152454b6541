"""Signals that ask a job to stop. A handler notes the time and nothing else; the training loop looks at its boundaries.

Importing this takes milliseconds, so that a script can call `watch()` before it imports torch: a signal that arrives
while a rank still starts is then kept, and does not kill it.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
"""TERM: Kubernetes, Slurm at preemption and at the limit, torchrun. INT: a terminal. USR1, USR2: Slurm's --signal."""


class Signals:
    """What came since `watch`, for one process. A signal that comes again changes nothing.

    Python runs a handler when the main thread is back in Python: not while it waits in a collective. So the number goes
    into a pipe too (signal.set_wakeup_fd), and a thread that reads it knows at once: the watchdog asks.
    """

    def __init__(self, numbers: Iterable[signal.Signals] = STOPPING) -> None:
        self.numbers = tuple(numbers)
        # One slot a signal, made beforehand: the handler stores one float, at whatever instruction it interrupts.
        self._at = [0.0] * signal.NSIG
        self._before: dict[int, Any] = {}
        self._masks: list[set[int]] = []

    def watch(self) -> "Signals":
        """Installs the handlers, once. A signal that this process was started to ignore stays ignored.

        Processes forked from this one have the handlers that were there before. Raises RuntimeError outside the main
        thread, where Python installs no handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are watched from the main thread · make the runtime there")
        if self._before:
            return self
        for number in self.numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._came)
                # System calls in native code (gloo, file system clients) go on where they were: not all know EINTR.
                signal.siginterrupt(number, False)
        read, write = os.pipe()
        os.set_blocking(write, False)
        if signal.set_wakeup_fd(write, warn_on_full_buffer=False) != -1:
            signal.set_wakeup_fd(-1)  # asyncio had it; the handlers do
        threading.Thread(target=self._hear, args=(read,), name="signals", daemon=True).start()
        os.register_at_fork(
            before=lambda: self._masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)),
            after_in_parent=lambda: self._unmask(),
            after_in_child=lambda: self._forget(),
        )
        return self

    def came(self, number: int) -> float | None:
        """When it first came, on the clock of time.monotonic(); None if it did not."""
        return self._at[number] or None

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if not self._at[number]:
            self._at[number] = time.monotonic()

    def _hear(self, pipe: int) -> None:
        while heard := os.read(pipe, 64):
            for number in heard:
                if number in self._before:
                    self._came(number, None)

    def _unmask(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.pop())

    def _forget(self) -> None:
        """In a forked process: a signal to it is its own, and must not be heard through the shared pipe."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._at = [0.0] * signal.NSIG
        self._unmask()


_signals = Signals()


def watch() -> Signals:
    """The process's own Signals, watching. The earlier it is called, the fewer moments a signal kills in."""
    return _signals.watch()


@contextlib.contextmanager
def shield() -> Iterator[None]:
    """Processes started inside never see the signals of STOPPING: for `iter(loader)`, which starts its workers.

    Works through the signal mask, which fork and exec pass on: no moment is left in which a worker is killed by a
    signal that is meant for the job. A signal that comes meanwhile is delivered at the end. Such workers cannot be
    ended by SIGTERM; they leave when told to, when their parent is gone, or by SIGKILL (`runtime.stops.leave`).
    """
    from multiprocessing import resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        # Spawning starts the tracker on its first use, and that unblocks TERM and INT in the caller (CPython 3.11).
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Calm:
    """A `worker_init_fn` that makes a data-loader worker ignore STOPPING and then calls the one it wraps.

    For loops that start the workers where `shield` cannot be put around (Lightning, Accelerate). Can be pickled.
    """

    def __init__(self, wrapped: Callable[[int], None] | None = None) -> None:
        self.wrapped = wrapped

    def __call__(self, worker: int) -> None:
        """In the worker, which torch gave a SIGTERM handler that ends it unless its parent sent the signal."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        if self.wrapped is not None:
            self.wrapped(worker)


def calm(loader: Any) -> Any:
    """The same torch DataLoader, with workers that ignore STOPPING."""
    if not isinstance(loader.worker_init_fn, Calm):
        loader.worker_init_fn = Calm(loader.worker_init_fn)
    return loader
