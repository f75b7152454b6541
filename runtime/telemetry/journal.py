"""The file behind goodput: lines are added, and nothing that a crash leaves makes it unreadable. Kept by rank 0."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from runtime.place import Place
from runtime.telemetry.goodput import LINE, Back, Beat, Carried, Goodput, Ledger, Line, Started, Stepped, Waited
from runtime.telemetry.record import Event, Step, Waits
from runtime.telemetry.steps import PHASES

COMPACT_BYTES = 1 << 20
READ_LIMIT_BYTES = 64 << 20
LINE_LIMIT_BYTES = 1 << 20
WRITE_EVERY_S = 10.0
UNWRITTEN_LIMIT_BYTES = 1 << 20
RESTORED = "checkpoint.restored"
"""The event whose `step` is where training goes on from."""
SAVED = frozenset({"checkpoint.saved", "checkpoint.committed"})


def read(path: Path) -> Iterator[Line]:
    """The entries of a journal; a line that is torn or no entry is passed over. Raises OSError."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        left = READ_LIMIT_BYTES
        while left > 0 and (line := file.readline(LINE_LIMIT_BYTES)):
            left -= len(line)
            try:
                yield LINE.validate_json(line)
            except ValidationError:
                continue


class Journal:
    """Receives steps and restores, writes them down in sums, and says after each what the run is worth."""

    def __init__(
        self,
        path: Path,
        place: Place,
        said: Callable[[Ledger], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        every_s: float = WRITE_EVERY_S,
        gpu_busy: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._path, self._said, self._clock, self._every_s = path, said, clock, every_s
        self._gpu_busy = gpu_busy
        self.ledger = Ledger()
        path.parent.mkdir(parents=True, exist_ok=True)
        for entry in read(path):
            self.ledger.take(entry)
        if path.exists() and path.stat().st_size > COMPACT_BYTES:
            self._compact()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size
        torn = self._size and os.pread(self._file, 1, self._size - 1) != b"\n"
        self._unwritten = b"\n" if torn else b""
        self._going: Stepped | None = None
        self._written_s = self._clock()
        self._write(Started(at_s=self._written_s, attempt=place.attempt[:256], world=place.world))

    def take(self, batch: list[Step | Event | Waits]) -> None:
        """Takes steps, waits and events in, and writes every few seconds and at each saved checkpoint."""
        for item in batch:
            if isinstance(item, Step):
                self._stepped(item)
            elif isinstance(item, Waits):
                self._settle()
                self._write(_waited(item))
            elif item.name == RESTORED and item.step is not None:
                self._settle()
                self._write(Back(at_s=item.at_ns / 1e9, step=max(-1, item.step)))
            elif item.name in SAVED:
                self._settle()
        if self._clock() - self._written_s >= self._every_s:
            self._settle()
            self._write(Beat(at_s=self._clock(), gpu_busy=self._gpu_busy()))
        self._said(self.ledger)
        self._sync()

    def close(self) -> None:
        """Writes what is left."""
        self._settle()
        self._write(Beat(at_s=self._clock()))
        try:
            self._sync()
        finally:
            os.close(self._file)

    def _stepped(self, step: Step) -> None:
        going = self._going
        if going is not None and step.number != going.last + 1:
            self._settle()
            going = None
        self._going = Stepped(
            at_s=step.end_ns / 1e9,
            first=step.number if going is None else going.first,
            last=step.number,
            useful=int(step.useful) + (0 if going is None else going.useful),
            seconds=step.seconds + (0.0 if going is None else going.seconds),
            parts=_added({} if going is None else going.parts, step.parts),
        )

    def _settle(self) -> None:
        if self._going is not None:
            going, self._going = self._going, None
            self._write(going)

    def _write(self, entry: Line) -> None:
        """Counts an entry at once; the file gets it now, or with a later one when the disk takes lines again."""
        self.ledger.take(entry)
        self._written_s = self._clock()
        line = entry.model_dump_json(exclude_none=True).encode() + b"\n"
        if len(self._unwritten) + len(line) <= UNWRITTEN_LIMIT_BYTES:
            self._unwritten += line

    def _sync(self) -> None:
        if not self._unwritten:
            return
        try:
            if os.write(self._file, self._unwritten) != len(self._unwritten):
                raise OSError(f"{self._path}: a line was cut off")
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)  # no half line stays
            raise
        self._size += len(self._unwritten)
        self._unwritten = b""

    def _compact(self) -> None:
        """Puts the sum in the place of the lines, whole or not at all. The lines stay, in a file of their own."""
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        older = self._path.with_suffix(f".{self.ledger.starts:06}{self._path.suffix}")
        try:
            if not older.exists():  # else a crash came before the next line, the last time
                shutil.copyfile(self._path, fresh)  # a link would do, where the file system has them
                fresh.replace(older)
            with fresh.open("wb") as file:
                file.write(self.ledger.carried().model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        finally:
            fresh.unlink(missing_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def history(path: Path) -> Iterator[Line]:
    """The entries of a journal from its run's first start on, those before a compaction too. Raises OSError.

    A sum of older lines is among them only where the lines themselves are gone.
    """
    ledger = Ledger()
    for file in (*sorted(path.parent.glob(f"{path.stem}.[0-9]*{path.suffix}")), path):
        for entry in read(file):
            if isinstance(entry, Carried) and 0 < entry.starts == ledger.starts:
                continue
            ledger.take(entry)
            yield entry


def _waited(item: Waits) -> Waited:
    return Waited(
        at_s=item.at_ns / 1e9,
        first=item.first,
        last=item.last,
        seconds=item.waited_s,
        parts={name: round(seconds, 6) for name, seconds in item.parts.items()},
        rank=item.rank,
        node=item.node[:256],
        phase=item.phase,
    )


def _added(parts: dict[str, float], more: dict[str, int]) -> dict[str, float]:
    """Seconds of each phase, and ns more."""
    return {name: parts.get(name, 0.0) + more.get(name, 0) / 1e9 for name in PHASES if name in parts or name in more}


def summed(path: Path, cost_per_rank_hour: float = 0.0, pause_costs: bool = True) -> Goodput:
    """What a run is worth by its journal, up to the journal's last entry. Raises OSError."""
    ledger = Ledger()
    for entry in read(path):
        ledger.take(entry)
    return ledger.goodput(ledger.latest_s, cost_per_rank_hour, pause_costs)
