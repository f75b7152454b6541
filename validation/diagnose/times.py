"""When it was: a year for times that have none, what is outside of the job's own time, and how far clocks may differ.

Logs are copied, and what a file's own time says of the year is then wrong; nodes have clocks of their own; and a node's
log goes back for weeks, in which other jobs ran on it. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from validation.diagnose.finding import Found
from validation.diagnose.kinds import Role, Symptom
from validation.diagnose.lines import NO_YEAR
from validation.diagnose.rule import Rule

SKEW = timedelta(seconds=5)
"""How far apart buffers may put what happened at once on one node."""
CLOCKS = timedelta(minutes=3)
"""How far apart the clocks of two nodes may be."""
AROUND = timedelta(minutes=15)
"""What a node says longer before the job's first line, or after its last, is of another job."""

WORLD = "progress.world"
"""The kind of lines that say how many ranks there are, before any has worked."""

SLOWNESS = frozenset({Symptom.SLOW, Symptom.SLOWED_DOWN})
"""A job can go on with these."""


def with_years(found: Sequence[Found]) -> list[Found]:
    """The same, and a time without a year is in that which brings it nearest to the times that have one."""
    stated = sorted(time for each in found for time in _times(each) if not _yearless(time))
    if not stated:
        return list(found)
    middle = stated[len(stated) // 2]

    def near(time: datetime | None) -> datetime | None:
        if time is None or not _yearless(time):
            return time
        could = []
        for year in (middle.year - 1, middle.year, middle.year + 1):
            try:
                could.append(time.replace(year=year, tzinfo=UTC))
            except ValueError:  # the 29th of February
                continue
        return min(could, key=lambda each: abs(each - middle), default=time)

    return [
        replace(each, line=each.line._replace(time=near(each.line.time)), first=near(each.first), last=near(each.last))
        for each in found
    ]


@dataclass(frozen=True)
class JobTime:
    """From the first to the last line that is the job's: of a rank, or of its progress."""

    files: frozenset[str]
    """That have such a line."""
    start: datetime
    end: datetime
    progress: datetime | None
    """When it was last seen to work."""

    def outside(self, each: Found, rule: Rule) -> bool:
        """Whether a line is of its node only, and of another time; or the job went on for long after it."""
        times = _times(each)
        if each.line.file in self.files or not times:
            return False
        if max(times) < self.start - AROUND or min(times) > self.end + AROUND:
            return True
        went_on = self.progress is not None and max(times) < self.progress - AROUND
        return went_on and rule.symptom not in SLOWNESS


def job_time(found: Iterable[Found], by_id: Mapping[str, Rule]) -> JobTime | None:
    """None where no line of the job has a time."""
    ours = [each for each in found if _of_job(each, by_id)]
    times = [time for each in ours for time in _times(each)]
    if not times:
        return None
    worked = [time for each in ours if _is_work(by_id[each.rule]) for time in _times(each)]
    return JobTime(frozenset(each.line.file for each in ours), min(times), max(times), max(worked, default=None))


def _is_work(rule: Rule) -> bool:
    return rule.role is Role.PROGRESS and rule.kind != WORLD


def not_later(one: Found, other: Found) -> bool:
    """Whether one may have come first: it is not clearly later than the other, as far as both have a time."""
    if one.line.time is None or other.line.time is None:
        return True
    near = one.line.file == other.line.file or (one.line.node is not None and one.line.node == other.line.node)
    return one.line.time <= other.line.time + (SKEW if near else CLOCKS)


def ended_well(found: Iterable[Found], by_id: Mapping[str, Rule]) -> Found | None:
    """The line in which the job says that it is done, the last one."""
    said = [each for each in found if by_id[each.rule].role is Role.PROGRESS and by_id[each.rule].kind == "stop.done"]
    return max(said, key=lambda each: (_seconds(each.line.time), each.line.file, each.line.number), default=None)


def long_before(each: Found, end: Found) -> bool:
    """Whether the job came to its end although this was said: so that it cannot be why it did not."""
    if each.line.file == end.line.file and each.line.rank in (None, end.line.rank):
        return each.line.number < end.line.number
    time = each.last or each.line.time
    return time is not None and end.line.time is not None and time < end.line.time - AROUND


def after(each: Found, end: Found) -> bool:
    """Whether it was said when the job had ended."""
    if each.line.file == end.line.file:
        return each.line.number > end.line.number
    return each.line.time is not None and end.line.time is not None and each.line.time > end.line.time


def went_on(each: Found, step: Found) -> bool:
    """Whether a step was made after all that was found: of the same rank, or clearly later."""
    if each.line.file == step.line.file and each.line.rank in (None, step.line.rank):
        return max(each.until, each.line.number) < step.line.number
    time = each.last or each.line.time
    return time is not None and step.line.time is not None and time + CLOCKS < step.line.time


def _of_job(each: Found, by_id: Mapping[str, Rule]) -> bool:
    return each.line.rank is not None or "rank" in each.takes or by_id[each.rule].role is Role.PROGRESS


def _times(each: Found) -> list[datetime]:
    return [time for time in (each.first, each.line.time, each.last) if time is not None]


def _yearless(time: datetime) -> bool:
    return time.tzname() == NO_YEAR.tzname(None)


def _seconds(time: datetime | None) -> float:
    return time.timestamp() if time else 0.0
