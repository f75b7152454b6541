"""What failed, from the exception that a rank ends with or the text that it left. By type first, by text last.

A type that says it all decides alone. Text is looked at only where the type is a general one (RuntimeError, OSError,
torch's own): what a KeyError quotes says nothing about the network. Where a text does not tell whether starting again
helps, the answer is that it may: `runtime.failures.restarts` ends it if it does not.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.exits import Exit
from runtime.failures.kinds import TREATMENTS, Kind, Treatment
from runtime.failures.table import AFTER_TEXT, ERRNO, GENERAL, TEXTS, TYPES

READ = 1 << 16
"""Characters of a text that are looked at, half from each end: a worker's traceback can be of any length."""


@dataclass(frozen=True)
class Failure:
    """One failure. `text`: its first line, as it was raised; `decided_by`: the type or the pattern that did."""

    kind: Kind
    text: str
    decided_by: str

    @property
    def treatment(self) -> Treatment:
        """What to do about it."""
        return TREATMENTS[self.kind]


def classify(error: BaseException) -> Failure:
    """The failure behind an exception: the first thing that went wrong along its causes, unless that is the program.

    Its text is that of the last error of the kind, which was raised by who knows what to do about it.
    """
    found = [_single(each) for each in _chain(error)]
    first = next((each for each in reversed(found) if each.kind is not Kind.PROGRAM), found[0])
    return next(each for each in found if each.kind is first.kind)


def classify_text(text: str) -> Failure:
    """The failure behind a text that a process left, as a log's end or a traceback. PROGRAM where nothing is known."""
    return _by_text(text) or Failure(Kind.PROGRAM, _first_line(text), "nothing known in the text")


def classify_exit(code: int) -> Failure:
    """The failure behind an exit code as subprocess and torchrun give it: -n for a process that signal n ended."""
    for kind, number, text in (
        (Kind.OUT_OF_MEMORY_HOST, 9, "killed: by the kernel for memory, or after a grace"),
        (Kind.STOPPED, 15, "terminated before it watched for signals"),
        (Kind.NCCL, 6, "aborted: torch's watchdog does so after a collective's timeout"),
        (Kind.PROGRAM, 11, "segmentation fault"),
        (Kind.STORAGE, 7, "bus error: a file or shared memory was cut short"),
    ):
        if code in (-number, 128 + number):
            return Failure(kind, text, f"exit code {code}")
    try:
        known = Exit(code)
    except ValueError:
        return Failure(Kind.PROGRAM, f"ended with {code}", f"exit code {code}")
    kinds = {Exit.RESUMABLE_STOP: Kind.STOPPED, Exit.RESUMABLE_FAILURE: Kind.PEER_LOST}
    return Failure(kinds.get(known, Kind.PROGRAM), known.name.lower(), f"exit code {code}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it came from, with the members of groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < 100:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        source = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if source is not None:
            waiting.append(source)


def _single(error: BaseException) -> Failure:
    names = [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__]
    text = str(error)
    # torch hands a worker's exception on as its own type, with the worker named in the text.
    if re.match(r"caught \w+ in (DataLoader worker|pin memory)", text, re.IGNORECASE):
        return Failure(Kind.DATA, _first_line(text), "the worker's name in the text")
    for name in names:
        if name in TYPES:
            return Failure(TYPES[name], _first_line(text), name)
    if isinstance(error, OSError) and error.errno in ERRNO:
        return Failure(ERRNO[error.errno], _first_line(text), f"errno {errno.errorcode[error.errno]}")
    if any(name in GENERAL for name in names) and (found := _by_text(text)):
        return found
    kind = next((AFTER_TEXT[name] for name in names if name in AFTER_TEXT), Kind.PROGRAM)
    return Failure(kind, _first_line(text) or names[0], names[0])


def _by_text(text: str) -> Failure | None:
    looked_at = text if len(text) <= READ else text[: READ // 2] + "\n" + text[-READ // 2 :]
    for kind, pattern in TEXTS:
        if found := pattern.search(looked_at):
            return Failure(kind, _first_line(text), found[0][:200])
    return None


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:500]
