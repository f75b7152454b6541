"""Events as lines: JSON for machines, short ones for people; and the file and the console that they go to."""

import contextlib
import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from runtime.place import Place
from runtime.telemetry.config import Console
from runtime.telemetry.record import LEVELS, Event
from runtime.telemetry.redact import Redactor

LINE_LIMIT = 65_536
"""Bytes of one line."""


def json_line(event: Event, place: Place, run: str, redactor: Redactor) -> str:
    """One event as one line of JSON, secrets filtered. A field with a name of the envelope yields to it."""
    head = {
        "time": _when(event.at_ns).isoformat(timespec="microseconds"),
        "level": event.level,
        "event": redactor.text(event.name),
        "run": run,
        "attempt": place.attempt,
        "host": place.node,
        "rank": place.rank,
        "pid": os.getpid(),
        "step": event.step,
    }
    fields = {name: each for name, each in redactor.fields(event.fields).items() if name not in head}
    line = json.dumps({**head, **fields}, ensure_ascii=False, default=str, separators=(",", ":"))
    if len(line) > LINE_LIMIT // 4:  # at most four bytes a character
        line = json.dumps({**head, "cut": True, "begins": line[: LINE_LIMIT // 8]}, ensure_ascii=False)
    return line


def human_line(event: Event, place: Place, redactor: Redactor, colour: bool = False) -> str:
    """One event as a line for people; an exception's traceback follows on lines of its own."""
    fields = redactor.fields(event.fields)
    told, after = [], []
    for name, each in fields.items():
        if isinstance(each, dict) and "traceback" in each:
            told.append(f"{name}={each.get('type')}: {each.get('text')}")
            after.append(str(each["traceback"]).rstrip())
        else:
            told.append(f"{name}={f'{each:.4g}' if isinstance(each, float) else each}")
    mark = {"warning": "!", "error": "✗"}.get(event.level, " ")
    step = "" if event.step is None else f" step {event.step}"
    line = f"{_when(event.at_ns).astimezone():%H:%M:%S} {mark} rank {place.rank}{step} {redactor.text(event.name)}"
    line = _one_line(" ".join([line, *told]))
    if colour and event.level in ("warning", "error"):
        line = f"\x1b[{33 if event.level == 'warning' else 31}m{line}\x1b[0m"
    return "\n".join([line, *(_printable(each) for each in after)])


class LogFile:
    """A rank's log file, JSON lines, turned over by size. Raises OSError where the disk will not have a line.

    A line that was cut off, by a full disk or a crash, does not spoil the next.
    """

    def __init__(self, path: Path, render: Callable[[Event], str], max_bytes: int, keep: int) -> None:
        self._path, self._render, self._max_bytes, self._keep = path, render, max_bytes, keep
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    def take(self, batch: list[Event]) -> None:
        """Writes the events."""
        if not batch:
            return
        data = "".join(f"{self._render(event)}\n" for event in batch).encode(errors="replace")
        if self._size and self._size + len(data) > self._max_bytes:
            self._turn_over()
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._size)  # no half line stays where a disk was full
            raise
        self._size += len(data)

    def close(self) -> None:
        """Ends with the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            _write_all(self._file, b"\n")

    def _turn_over(self) -> None:
        os.close(self._file)
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._keep == 1:
            self._path.unlink(missing_ok=True)
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")


class StandardError:
    """Standard error. Written to below Python's buffers, whose locks a forked data-loader worker would inherit."""

    def __init__(self, render: Callable[[Event], str]) -> None:
        self._render = render

    def take(self, batch: list[Event]) -> None:
        """Writes the events."""
        if batch:
            _write_all(2, "".join(f"{self._render(event)}\n" for event in batch).encode(errors="replace"))

    def close(self) -> None:
        """Nothing to end."""


def console(kind: Console, place: Place, run: str, redactor: Redactor) -> StandardError | None:
    """What standard error gets by the configuration; None where it gets nothing."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if kind is Console.AUTO:
        kind = Console.HUMAN if terminal else Console.JSON
    if kind is Console.HUMAN:
        return StandardError(lambda event: human_line(event, place, redactor, terminal))
    if kind is Console.JSON:
        return StandardError(lambda event: json_line(event, place, run, redactor))
    return None


class _Hears(Protocol):
    def __call__(self, event: str, /, **fields: Any) -> None: ...


class Bridge(logging.Handler):
    """Makes events of what libraries say through Python's logging, from warnings on."""

    def __init__(self, tell: _Hears) -> None:
        super().__init__(logging.WARNING)
        self._telling = tell

    def createLock(self) -> None:  # noqa: N802 (logging's own name)
        """None is needed: telling takes none, and a forked child would inherit it."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Tells one record. Never raises."""
        with contextlib.suppress(Exception):
            fields: dict[str, Any] = {"logger": record.name, "text": record.getMessage()}
            if record.exc_info and record.exc_info[1] is not None:
                fields["error"] = record.exc_info[1]
            level = record.levelname.lower()
            self._telling("log", level=level if level in LEVELS else "error", **fields)


def _when(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns / 1e9, UTC)


def _write_all(file: int, data: bytes) -> None:
    while data:
        written = os.write(file, data)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        data = data[written:]


def _one_line(text: str) -> str:
    return _printable(text).replace("\n", "⏎")


def _printable(text: str) -> str:
    """Without the control characters that move a terminal's cursor."""
    return "".join(each if each >= " " or each in "\n\t" else "�" for each in text)
