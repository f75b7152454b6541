"""A step that does not end: the stacks of every thread are written, then the process ends with a code that says so.

Each rank watches itself: of a job that is stuck, every rank is, and each writes its own stacks. A thread does the
watching; a collective and a system call leave the interpreter to it. Native code that does not is met by faulthandler's
timer, which needs no interpreter, but ends the process with 1, and writes the stacks to standard error.

No file is written before a step is stuck, and no write is waited for: storage may be what it is stuck in.
"""

import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from runtime.events import Tell, silence
from runtime.exits import Exit
from runtime.failures import recorder
from runtime.place import Place
from runtime.stops.bounded import HungError, bounded
from runtime.stops.leave import end

LOOK_S = 1.0
"""How often the thread looks."""

WRITE_S = 10.0
"""How long the stacks may take to be written."""

RECORD_S = 10.0
"""How long torch may take to give its record of collectives: of a device that hangs it may never."""

STDERR = 2
"""Its descriptor: what is written there is kept wherever jobs' output is."""


class WatchdogConfig(BaseModel):
    """`limit_s`: for a step, 600 as torch's own for a collective; `first_s`: for the first, which compiles and caches.

    `settle_s`: between the stacks and the end, for the other ranks to write theirs before a launcher kills them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit_s: float = Field(gt=0, default=600.0)
    first_s: float = Field(gt=0, default=1800.0)
    settle_s: float = Field(ge=0, default=3.0)


class Watchdog:
    """Watches from `start` to `close`. The training loop calls `beat` at each step's boundary.

    `killed` says when the process will be killed, on time.monotonic() (Stopper.killed): a step that is still under way
    two seconds before is ended too, so that communicators do not end with SIGKILL. `end` ends the process.
    """

    def __init__(
        self,
        config: WatchdogConfig,
        place: Place,
        folder: Path,
        tell: Tell = silence,
        killed: Callable[[], float | None] = lambda: None,
        end: Callable[[Exit], object] = end,
    ) -> None:
        self.config, self.place, self.folder, self.tell = config, place, folder, tell
        self._killed, self._end = killed, end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._step, self._at, self._limit_s = -1, 0.0, config.first_s

    @property
    def stacks(self) -> Path:
        """The file that this rank's stacks go to."""
        return self.folder / f"{self.place.attempt}-rank-{self.place.rank}.stacks.txt"

    def start(self) -> "Watchdog":
        """Starts the thread."""
        recorder.prepare(self.folder, self.place)
        threading.Thread(target=self._make_folder, name="watchdog-folder", daemon=True).start()
        self._at = time.monotonic()
        self._arm()
        self._thread.start()
        return self

    def _make_folder(self) -> None:
        """torch writes its own record there, and makes no folder for it."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)

    def beat(self, step: int) -> None:
        """At the boundary after `step`. Costs less than a microsecond."""
        self._step, self._limit_s, self._at = step, self.config.limit_s, time.monotonic()

    @contextlib.contextmanager
    def patient(self, limit_s: float) -> Iterator[None]:
        """For work between steps that takes longer than one, as an evaluation: another limit while inside."""
        before, self._limit_s, self._at = self._limit_s, limit_s, time.monotonic()
        try:
            yield
        finally:
            self._limit_s, self._at = before, time.monotonic()

    def close(self) -> None:
        """Stops watching."""
        self._closed.set()
        faulthandler.cancel_dump_traceback_later()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2 * LOOK_S)

    def _watch(self) -> None:
        while not self._closed.wait(min(LOOK_S, self._limit_s / 4)):
            now, killed = time.monotonic(), self._killed()
            if now - self._at > self._limit_s:
                self._stuck(f"no step ended for {now - self._at:.0f} s")
                return
            if killed is not None and now > killed - 2 * LOOK_S:
                self._stuck("the step did not end within the grace after a signal")
                return
            self._arm()

    def _arm(self, limit_s: float | None = None) -> None:
        """A dead man's switch: if the thread cannot set it again, native code holds the interpreter."""
        limit_s = self._limit_s if limit_s is None else limit_s
        faulthandler.dump_traceback_later(limit_s + 2 * LOOK_S, exit=True, file=STDERR)

    def _stuck(self, reason: str) -> None:
        self._arm(WRITE_S + RECORD_S + self.config.settle_s)  # torch keeps the interpreter while it gives its record
        found = stacks()
        try:
            bounded(lambda: self._write(reason, found), self._left_s(WRITE_S), "writing the stacks")
        except (OSError, HungError) as error:
            self.tell("step.stacks_not_written", reason=str(error), found=found.decode(errors="replace"))
        records, faults = self._records()
        if faults:
            self.tell("step.record_not_written", level="warning", reasons=faults)
        self.tell("step.stuck", step=self._step + 1, reason=reason, stacks=str(self.stacks), records=records)
        self._closed.wait(self._left_s(self.config.settle_s))
        if not self._closed.is_set():
            self._end(Exit.RESUMABLE_FAILURE)
        faulthandler.cancel_dump_traceback_later()

    def _left_s(self, most_s: float) -> float:
        """`most_s`, or half of what is left before the process is killed."""
        killed = self._killed()
        return most_s if killed is None else max(0.0, min(most_s, (killed - time.monotonic()) / 2))

    def _write(self, reason: str, found: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        head = f"rank {self.place.rank} on {self.place.node}, after step {self._step}: {reason}\n\n"
        self.stacks.write_bytes(head.encode() + found)

    def _records(self) -> tuple[list[str], list[str]]:
        """The files with this rank's collectives, and why there are none."""
        limit_s = self._left_s(RECORD_S)
        try:
            written, faults = bounded(lambda: recorder.write(self.folder, self.place), limit_s, "the flight recorder")
        except HungError as hung:
            return [], [str(hung)]
        return [str(each) for each in written], faults


def stacks() -> bytes:
    """Of every thread. By way of memory: faulthandler keeps the interpreter while it writes."""
    with open(os.memfd_create("stacks"), "w+b") as memory:  # noqa: PTH123
        faulthandler.dump_traceback(memory, all_threads=True)
        memory.seek(0)
        return memory.read()
