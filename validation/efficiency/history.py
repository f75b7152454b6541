"""What a run's journal says of the time that a job held its GPUs. Pure.

The journal (`goodput.jsonl`, kept by rank 0) has each start, the sums of steps every few seconds, and each return to a
checkpoint. A job's time is cut into pieces without gap or overlap; what no line explains is unknown.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from runtime.telemetry.goodput import Back, Beat, Carried, Line, Started, Stepped, Waited
from validation.efficiency.accounting import Job


class Cause(StrEnum):
    """What GPU time that a job held went into."""

    USEFUL = "useful"
    START = "start"
    CHECKPOINT = "checkpoint"
    DATA = "data"
    FAILURE = "failure"
    STRAGGLER = "straggler"
    IDLE = "idle"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """What it means."""
        return _WORDS[self]


_WORDS = {
    Cause.USEFUL: "steps in the run's history at its end, without their waits for data, checkpoints and stragglers",
    Cause.START: "from the job's start, or that of training, to the first step: images, imports, meeting, restoring",
    Cause.CHECKPOINT: "training stood still for a checkpoint",
    Cause.DATA: "training waited for data",
    Cause.FAILURE: "steps that were undone or void, and from the last step before a failure to the next start",
    Cause.STRAGGLER: "ranks waited for the slowest",
    Cause.IDLE: "held after the last step of a job that did not break",
    Cause.UNKNOWN: "held, and no journal says for what",
}
PARTS = {"data": Cause.DATA, "checkpoint": Cause.CHECKPOINT}
"""Phases of a step that are losses."""
COMMUNICATION = "communication"
NO_STEP = 1 << 53
"""No run has so many: a line that says so is no record of steps."""
LONGEST_S = 1e12
"""No line on waits is about so long a time."""
MOST_STRETCHES = 1000
"""That one line on waits may be about."""

Slow: TypeAlias = tuple[str, int, str | None]
"""Node and rank that the others waited for, and the phase in which it was slow where that is known."""


@dataclass(frozen=True)
class Run:
    """A journal. Its starts belong to the job whose id their names begin with, or to `jobs` where those are given."""

    name: str
    lines: tuple[Line, ...]
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Piece:
    """A piece of a job's time: seconds by cause, which add up to its length; and what was done in it."""

    begin_s: float
    end_s: float
    causes: dict[Cause, float]
    steps: float = 0.0
    """Useful ones."""
    step_s: float = 0.0
    """Time in steps of which the phases are known."""
    communication_s: float = 0.0
    unwatched_s: float = 0.0
    """Time in steps, not undone, of which nobody measured whether ranks waited for the slowest."""
    slow: dict[Slow, float] = field(default_factory=dict)
    """Seconds of waits for stragglers, by whom the ranks waited for."""

    def clipped(self, begin_s: float, end_s: float) -> "Piece | None":
        """The part of it between two times: each cause by its share. None where they do not meet."""
        begin, end = max(begin_s, self.begin_s), min(end_s, self.end_s)
        if end <= begin:
            return None
        share = (end - begin) / (self.end_s - self.begin_s)
        return Piece(
            begin,
            end,
            {cause: seconds * share for cause, seconds in self.causes.items()},
            self.steps * share,
            self.step_s * share,
            self.communication_s * share,
            self.unwatched_s * share,
            {who: seconds * share for who, seconds in self.slow.items()},
        )


@dataclass
class Stretch:
    """Steps `first` to `last`, as one line has them. `kept` of them were not undone later."""

    first: int
    last: int
    useful: int
    begin_s: float
    end_s: float
    parts: dict[str, float]
    kept: int
    returned: bool
    """Whether the run went back to a checkpoint just before."""
    watched: int = 0
    """Of how many of its steps it is known what ranks waited."""
    slow: dict[Slow, float] = field(default_factory=dict)
    """Seconds of a rank in these steps, mean over the ranks, in which it waited for this one."""
    means: dict[str, float] = field(default_factory=dict)
    """What of `parts` is a mean over all ranks; the rest is rank 0's."""

    @property
    def count(self) -> int:
        """Steps."""
        return self.last - self.first + 1


@dataclass
class Attempt:
    """From one start of training to the next."""

    name: str
    began_s: float
    stretches: list[Stretch] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)
    """When, and the share of time with a kernel running, mean over the GPUs of rank 0's node."""


@dataclass
class Told:
    """A journal, read."""

    attempts: list[Attempt]
    blind_until_s: float
    """Before it, starts and steps are known only in sum: older lines were folded into one."""
    phases: frozenset[str]
    """That it knows at all. One that it never names was not measured, whatever else was."""


def told(lines: Iterable[Line]) -> Told:
    """The journal's starts and steps, those undone later marked."""
    attempts: list[Attempt] = []
    done: list[Stretch] = []
    blind, returned = 0.0, False
    for line in lines:
        if isinstance(line, Carried):
            attempts, done, blind = [], [], line.at_s
        elif isinstance(line, Started):
            attempts.append(Attempt(line.attempt, line.at_s))
            returned = False
        elif isinstance(line, Back):
            _undo(done, line.step)
            returned = True
        elif not attempts:
            continue
        elif isinstance(line, Stepped) and line.first <= line.last < NO_STEP:
            _undo(done, line.first - 1)
            count = line.last - line.first + 1
            stretch = Stretch(
                line.first, line.last, min(line.useful, count), max(0.0, line.at_s - line.seconds), line.at_s,
                dict(line.parts), count, returned,
            )  # fmt: skip
            done.append(stretch)
            attempts[-1].stretches.append(stretch)
            returned = False
        elif isinstance(line, Waited) and line.first <= line.last < NO_STEP:
            _watch(attempts[-1].stretches, line)
        elif isinstance(line, Beat) and line.gpu_busy is not None:
            attempts[-1].busy.append((line.at_s, line.gpu_busy))
    return Told(attempts, blind, frozenset(name for each in done for name in each.parts))


def _watch(stretches: Sequence[Stretch], line: Waited) -> None:
    """What a line says of waits, among the stretches before it. There the phases become means over all ranks: what
    rank 0 was slow in, the others waited for, and it must not count twice.
    """
    last, steps = line.last, line.last - line.first + 1
    for stretch in reversed(stretches[-MOST_STRETCHES:]):
        if last < line.first:
            return
        both = min(stretch.last, last) - max(stretch.first, line.first) + 1
        last = min(last, stretch.first - 1)
        if not 0 < both <= stretch.count - stretch.watched:
            continue
        known = stretch.watched
        stretch.watched += both
        who = (line.node, line.rank, line.phase)
        stretch.slow[who] = stretch.slow.get(who, 0.0) + min(line.seconds, LONGEST_S) * both / steps
        for name in PARTS:
            if name in stretch.parts or name in line.parts:
                # Of the steps that are still rank 0's, as many as these leave; theirs come in their place.
                own = stretch.parts.get(name, 0.0) - stretch.means.get(name, 0.0)
                mean = min(line.parts.get(name, 0.0), LONGEST_S) * both / steps
                stretch.means[name] = stretch.means.get(name, 0.0) + mean
                left = own * (1 - both / (stretch.count - known))
                stretch.parts[name] = stretch.means[name] + left


def _undo(done: list[Stretch], step: int) -> None:
    """Marks what came after `step`."""
    while done and done[-1].first + done[-1].kept - 1 > step:
        last = done[-1]
        last.kept = max(0, step - last.first + 1)
        if last.kept:
            return
        done.pop()


def owner(attempt: Attempt, run: Run, jobs: Mapping[str, Sequence[Job]], now_s: float) -> Job | None:
    """The job, of these by their ids, that a start belongs to; None where none or several could be it."""
    named = re.match(r"(\d{1,20})\.", attempt.name)
    wanted = run.jobs or ({named[1]} if named else set())
    found = [
        job
        for each in wanted
        for job in jobs.get(each, ())
        if job.start_s <= attempt.began_s <= (job.end_s if job.end_s is not None else now_s)
    ]
    return found[0] if len(found) == 1 else None


def pieces(job: Job, attempts: Sequence[Attempt], known: Told, end_s: float) -> list[Piece]:
    """A job's whole time from its start to `end_s`, by what these of its run's starts say."""
    cutter = _Cutter(job.start_s, end_s, known.blind_until_s)
    for number, attempt in enumerate(sorted(attempts, key=lambda each: each.began_s)):
        cutter.all(attempt.began_s, Cause.FAILURE if number else Cause.START)
        for index, stretch in enumerate(attempt.stretches):
            before = Cause.START if index == 0 else Cause.FAILURE if stretch.returned else Cause.UNKNOWN
            cutter.all(stretch.begin_s, before)
            cutter.steps(stretch, known.phases)
    ran = bool(attempts) and bool(attempts[-1].stretches)
    rest = Cause.UNKNOWN if job.end_s is None else Cause.FAILURE if job.broke else Cause.IDLE if ran else Cause.START
    return cutter.end(rest)


class _Cutter:
    """Cuts from the left; clocks that run apart move a cut, but never make a gap or an overlap."""

    def __init__(self, begin_s: float, end_s: float, blind_until_s: float) -> None:
        self._at_s, self._end_s, self._owed = float(begin_s), float(end_s), 0.0
        self.pieces: list[Piece] = []
        self.all(blind_until_s, Cause.UNKNOWN)

    def all(self, until_s: float, cause: Cause) -> None:
        """Up to a time all goes into one cause."""
        until = min(until_s, self._end_s)
        if until > self._at_s:
            self.pieces.append(Piece(self._at_s, until, {cause: until - self._at_s}, steps=self._owed))
            self._at_s, self._owed = until, 0.0

    def steps(self, stretch: Stretch, phases: frozenset[str]) -> None:
        """Up to the end of some steps."""
        until = min(stretch.end_s, self._end_s)
        length = until - self._at_s
        count = stretch.count
        steps = stretch.useful * stretch.kept / count
        if length <= 0:
            self._owed += steps  # of a line as old as the one before it
            return
        good = min(1.0, stretch.useful * stretch.kept / count / count)
        took = stretch.end_s - stretch.begin_s
        parts = {name: min(1.0, seconds / took) for name, seconds in stretch.parts.items()} if took > 0 else {}
        losses = {cause: good * parts.get(name, 0.0) for name, cause in PARTS.items() if name in phases}
        waited = sum(stretch.slow.values())
        losses[Cause.STRAGGLER] = good * min(1.0, waited / took) if took > 0 else 0.0
        over = max(1.0, sum(losses.values()) / good) if good else 1.0
        shares = {Cause.FAILURE: 1.0 - good, **{cause: share / over for cause, share in losses.items()}}
        shares[Cause.USEFUL] = max(0.0, 1.0 - sum(shares.values()))
        self.pieces.append(
            Piece(
                self._at_s,
                until,
                {cause: share * length for cause, share in shares.items() if share > 0},
                steps=steps + self._owed,
                step_s=length if stretch.parts else 0.0,
                communication_s=length * parts.get(COMMUNICATION, 0.0),
                unwatched_s=length * good * (1 - stretch.watched / count),
                slow={
                    who: length * shares[Cause.STRAGGLER] * seconds / waited
                    for who, seconds in stretch.slow.items()
                    if waited > 0
                },
            )
        )
        self._at_s, self._owed = until, 0.0

    def end(self, cause: Cause) -> list[Piece]:
        """All pieces; the rest goes into one cause."""
        self.all(self._end_s, cause)
        if self._owed and self.pieces:
            self.pieces[-1] = replace(self.pieces[-1], steps=self.pieces[-1].steps + self._owed)
        return self.pieces
