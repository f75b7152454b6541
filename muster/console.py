"""What a command prints: results on standard output, progress and errors on standard error.

On a terminal progress is drawn; elsewhere it is plain lines, so that logs stay readable.
"""

import errno
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from policies.exits import Exit
from policies.report.visible import visible

WIDE = 160
"""Columns where nobody's terminal says how many there are."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Problem(Exception):  # noqa: N818 - people read it as one
    """Something a person must mend: what is wrong, where, and what to do. Ends the command with `exit`."""

    def __init__(self, what: str, *, where: str = "", advice: str = "", exit: Exit = Exit.ERROR) -> None:
        super().__init__(what)
        self.what, self.where, self.advice, self.exit = what, where, advice, exit

    def show(self) -> None:
        """Prints it on standard error."""
        where = readable(f"{self.where}: " if self.where else "")
        err.print(where, readable(self.what, "bold red"), sep="", end="\n")
        if self.advice:
            err.print(readable(f"    {self.advice}"))


ADVICE = {
    errno.ENOSPC: "make room on that disk, then run this again",
    errno.EDQUOT: "make room within your quota, then run this again",
    errno.EACCES: "run this as who stood the cluster up, or give yourself that right",
    errno.EPERM: "run this as who stood the cluster up, or give yourself that right",
    errno.EROFS: "make it writable: it is mounted read-only",
    errno.EMFILE: "raise the limit of open files (ulimit -n), then run this again",
    errno.ENFILE: "end what holds so many files open on this machine, then run this again",
    errno.EIO: "look at the disk: the kernel's log (dmesg) says more",
}
"""What to do where the operating system refuses, by its reason."""


def refused(error: OSError) -> Problem:
    """What the operating system refused, as a problem that a person can mend rather than a fault in Muster."""
    where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    advice = ADVICE.get(
        error.errno or 0, "look at what is there, then run this again; --debug shows where it was needed"
    )
    return Problem(error.strerror or str(error) or type(error).__name__, where=where, advice=advice)


def readable(text: str | Text, style: str = "") -> Text:
    """Text as it may be printed, whoever wrote it: nodes, their logs, a scheduler's users.

    Square brackets are no markup, and every hidden character but a line's end is written as its code: an escape
    sequence would rule the terminal.
    """
    plain = text.plain if isinstance(text, Text) else text
    shown = "\n".join(visible(line, sys.maxsize) for line in plain.split("\n"))
    if isinstance(text, Text):
        return text if shown == plain else Text(shown)
    return Text(shown, style)


def say(line: str) -> None:
    """One line of progress."""
    err.print(readable(line, "dim"))


def result(line: str | Text) -> None:
    """One line of a result."""
    out.print(readable(line))


def document(value: Any) -> None:
    """A result for machines: one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


class _Table(Table):
    """A table whose cells are texts, never markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(readable(cell) if isinstance(cell, str | Text) else cell for cell in cells), **options)


def table(*columns: str) -> Table:
    """An empty table in the style of all our tables."""
    made = _Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


SILENCE_S = 20
"""Seconds without a line after which a log gets one that would else only pass by on a terminal."""


@contextmanager
def progress(what: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, bool], None]]:
    """Shows what goes on: gives a function that takes a line, and whether it is worth keeping.

    On a terminal lines that are not kept replace each other beside a spinner; elsewhere one of them is printed where
    nothing was for a while, so that a log shows that the work goes on.
    """
    if not err.is_terminal:
        say(what)
        last = clock()

        def log(line: str, keep: bool) -> None:
            nonlocal last
            if keep or clock() - last >= SILENCE_S:
                say(line)
                last = clock()

        yield log
        return
    with err.status(readable(what)) as status:

        def show(line: str, keep: bool) -> None:
            if keep:
                say(line)
            status.update(readable(f"{what} · {line.splitlines()[0][:100] if line else ''}"))

        yield show
