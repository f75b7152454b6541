"""What passes from the training thread to the receivers: events and steps, plain and bounded."""

import math
import traceback
from dataclasses import dataclass, field
from typing import Any

from runtime.telemetry.overlap import Communication

LEVELS = ("debug", "info", "warning", "error")
ERRORS = frozenset({"failed", "stuck", "differs"})
WARNINGS = frozenset(
    {
        "late",
        "lost",
        "missing",
        "quarantined",
        "refused",
        "retried",
        "skipped",
        "slow",
        "torn",
        "unproven",
        "unreadable",
    }
)
"""Last words of an event's name that say how bad it is."""
TEXT_LIMIT = 16_384
"""Characters of one text; a traceback may be long, a log line must not be a file."""
FIELDS_LIMIT = 64
DEPTH_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `at_ns` since the epoch; `step` is the event's own, else the latest that was done."""

    at_ns: int
    name: str
    level: str
    step: int | None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of a step, in ns since the epoch. `inside` is the index of the phase around it, -1 for the step."""

    name: str
    start_ns: int
    end_ns: int
    inside: int = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank. Times in ns; `parts` are the times of the phases without those inside them."""

    number: int
    start_ns: int
    end_ns: int
    parts: dict[str, int]
    spans: tuple[Span, ...] = ()
    samples: int = 0
    tokens: int = 0
    loss: float | None = None
    grad_norm: float | None = None
    useful: bool = True
    communication: Communication | None = None
    """Of a backward pass not long before, in some steps."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Waits:
    """What the ranks waited for the slowest of them in steps `first` to `last`, told on rank 0. Seconds, of one rank:
    means over all.
    """

    at_ns: int
    first: int
    last: int
    waited_s: float
    seconds: float
    """Of all that the steps took."""
    parts: dict[str, float]
    rank: int
    """The slowest: the one that waited least."""
    node: str
    phase: str | None
    """In which the slowest spent its time while the others were done; None where its phases do not tell."""

    @property
    def share(self) -> float:
        """Of the steps' time."""
        return self.waited_s / self.seconds if self.seconds > 0 else 0.0


def level_of(name: str) -> str:
    """The level of an event that does not say it: by the last word of its name, as in `checkpoint.emergency_failed`."""
    word = name.replace("_", ".").rpartition(".")[2]
    return "error" if word in ERRORS else "warning" if word in WARNINGS else "info"


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can say it, bounded. Exceptions whole, with their traceback. Never raises."""
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            # JSON has no infinity, and few readers take a number of more than 64 bits.
            fits = math.isfinite(value) if isinstance(value, float) else abs(value) < 1 << 63
            return value if fits else str(value)
        if isinstance(value, str):
            return value if len(value) <= TEXT_LIMIT else value[:TEXT_LIMIT] + "…"
        if isinstance(value, BaseException):
            return whole(value)
        if depth < DEPTH_LIMIT:
            if isinstance(value, dict):
                return {str(key): plain(each, depth + 1) for key, each in list(value.items())[:FIELDS_LIMIT]}
            if isinstance(value, list | tuple | set | frozenset):
                return [plain(each, depth + 1) for each in list(value)[:FIELDS_LIMIT]]
        return plain(str(value), depth)
    except Exception:
        return f"<{type(value).__name__} that cannot be said>"


def whole(error: BaseException) -> dict[str, str]:
    """An exception with its type, text and traceback, causes and groups included. The end is kept where it is long."""
    lines = "".join(traceback.format_exception(error))
    if len(lines) > TEXT_LIMIT:
        lines = lines[:1024] + "\n…\n" + lines[-(TEXT_LIMIT - 1030) :]
    return {"type": type(error).__qualname__, "text": plain(str(error)), "traceback": lines}
