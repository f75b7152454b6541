"""Where the time of a step goes. On the training thread: a few clock readings a phase, and no lock."""

import threading
import time
from types import TracebackType
from typing import Any

from runtime.telemetry.record import Span, Step

PHASES = ("data", "forward", "backward", "communication", "optimizer", "checkpoint", "evaluation")
"""The parts that dashboards and alarms know. Others may be named; the first few get their own series."""
SPANS_LIMIT = 256
"""Phases of one step that are kept with their times; the rest are only added up."""


class Stopwatch:
    """Measures phases and steps of the thread that made it. Phases of other threads are not part of a step.

    A step lasts from the end of the one before to its own end, so that nothing between two steps is lost; the first
    begins with its first phase. GPU work is asynchronous: a phase is the time that the training thread spent in it.
    """

    __slots__ = ("_anchor_ns", "_depth", "_names", "_open", "_owner", "_parts", "_spans", "_start")

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self._anchor_ns = time.time_ns() - time.perf_counter_ns()
        self._start: int | None = None
        self._parts: dict[str, int] = {}
        self._spans: list[tuple[str, int, int, int]] = []
        self._open: list[list[Any]] = []

    def phase(self, name: str) -> "Phase":
        """A context in which the time belongs to `name`; phases may lie in each other."""
        return Phase(self, name)

    def enter(self, name: str) -> None:
        """Begins a phase."""
        if threading.get_ident() != self._owner:
            return
        index = -1
        if len(self._spans) < SPANS_LIMIT:
            index = len(self._spans)
            self._spans.append((name, 0, 0, self._open[-1][3] if self._open else -1))
        now = time.perf_counter_ns()
        if self._start is None:
            self._start = now
        self._open.append([name, now, 0, index])  # name, start, time of the phases inside, index of its span

    def leave(self) -> None:
        """Ends the innermost phase."""
        self._leave(time.perf_counter_ns())

    def _leave(self, now: int) -> None:
        if threading.get_ident() != self._owner or not self._open:
            return
        name, start, inner, index = self._open.pop()
        took = now - start
        self._parts[name] = self._parts.get(name, 0) + took - inner
        if self._open:
            self._open[-1][2] += took
        if index >= 0:
            self._spans[index] = (name, start, now, self._spans[index][3])

    def done(self, number: int, **values: Any) -> Step | None:
        """Ends the step. None for a first one without any phase: when it began is not known.

        A phase that is still open (the boundary lies inside it) is cut at the boundary and goes on in the next step.
        """
        now = time.perf_counter_ns()
        going = [name for name, *_ in self._open]
        while self._open:
            self._leave(now)
        start, parts, spans, anchor = self._start, self._parts, self._spans, self._anchor_ns
        # The wall clock may be set between two steps; within one it is not read again.
        self._anchor_ns = time.time_ns() - time.perf_counter_ns()
        self._start, self._parts, self._spans = now, {}, []
        for name in going:
            self.enter(name)
        if start is None:
            return None
        return Step(
            number=number,
            start_ns=start + anchor,
            end_ns=now + anchor,
            parts=parts,
            spans=tuple(Span(name, first + anchor, last + anchor, inside) for name, first, last, inside in spans),
            **values,
        )


class Phase:
    """One phase. Never raises, and lets every exception pass."""

    __slots__ = ("_name", "_watch")

    def __init__(self, watch: Stopwatch, name: str) -> None:
        self._watch, self._name = watch, name

    def __enter__(self) -> None:
        self._watch.enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.leave()
