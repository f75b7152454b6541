"""What happened on which rank and when, as inline SVG: a row a rank; marks for causes, consequences, last steps. Pure.

Rows that say nothing, or the same as many others, are folded into one. Where no line has a time, marks stand in the
order of files and their lines, and the picture says so.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from markupsafe import Markup

from policies.report.names import ranges
from policies.report.svg import line, svg, text
from policies.report.visible import visible
from validation.diagnose.axis import Axis, axis
from validation.diagnose.finding import Cause, Diagnosis, Evidence
from validation.diagnose.reason import MOST_EVIDENCE

FEW = 24
"""Up to so many rows each is drawn; of more, those that say most."""

MOST_FOLDED = 5
"""Rows that stand for many: one for each step at which ranks stopped."""

_WIDTH, _LEFT, _RIGHT, _TOP, _HIGH = 1180.0, 196.0, 24.0, 46.0, 28.0
_UNTIMED = 92.0
"""Pixels for marks without a time, where others have one."""
_APART = 15.0
"""Pixels between marks of a row."""


class Sign(StrEnum):
    """What a mark means. The order is that in which rows are worth showing."""

    CAUSE = "cause"
    OTHER = "other"
    CONSEQUENCE = "consequence"
    STEP = "step"


WORDS = {
    Sign.CAUSE: "root cause",
    Sign.OTHER: "could be the cause too",
    Sign.CONSEQUENCE: "only a consequence",
    Sign.STEP: "last step seen",
}


@dataclass(frozen=True)
class Mark:
    """A line that means something, on the row of whoever wrote it. `anchor` is the line's id within the page."""

    sign: Sign
    time: datetime | None
    file: str
    number: int
    said: str
    anchor: str = ""


@dataclass
class Row:
    """A rank; a node or a file where no rank is known; or many ranks in one. `named`: the root cause is laid on it."""

    label: str
    marks: list[Mark] = field(default_factory=list)
    named: bool = False
    missing: bool = False
    ranks: tuple[int, ...] = ()
    step: int | None = None

    @property
    def worth(self) -> int:
        """What the row has to say, most first: from 0."""
        signs = [list(Sign).index(mark.sign) for mark in self.marks]
        return 0 if self.named else min(signs, default=len(Sign))


def timeline(diagnosis: Diagnosis) -> Markup:
    """The picture. Empty where there is nothing to show."""
    every = _rows(diagnosis)
    marks = [mark for row in every for mark in row.marks]
    if not marks:
        return Markup("")
    rows = every if len(every) <= FEW else _folded(every)
    timed = any(mark.time for mark in marks)
    untimed = timed and not all(mark.time for mark in marks)
    right = _WIDTH - _RIGHT - (_UNTIMED if untimed else 0)
    bottom = _TOP + _HIGH * len(rows)
    parts = [
        Markup('<rect x="0" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}"/>').format(
            _TOP + _HIGH * i, _WIDTH, _HIGH, "named" if row.named else "band" if i % 2 else "plain"
        )
        for i, row in enumerate(rows)
    ]
    if timed:
        across = axis([mark.time for mark in marks if mark.time], _LEFT + 18, right - 18)
        parts += _ruled(across, bottom)
        if untimed:
            parts.append(line(right, _TOP - 10, right, bottom, "edge"))
            parts.append(text(right + _UNTIMED / 2, _TOP - 30, "without time", "middle", "axis"))
        place = {mark: across.x(mark.time) if mark.time else right + 18 for mark in marks}
        first = min((mark.time for mark in marks if mark.sign is Sign.CAUSE and mark.time), default=None)
        if first:
            parts.append(line(across.x(first), _TOP, across.x(first), bottom, "since"))
    else:
        place = _in_order(marks, _LEFT + 18, right - 18)
        parts.append(
            text(_LEFT, _TOP - 16, "no line has a time: in the order of files and their lines →", "start", "axis")
        )
    for i, row in enumerate(rows):
        parts += _drawn(row, _TOP + _HIGH * (i + 0.5), place, _WIDTH - 12)
    return svg(_WIDTH, bottom + 6, parts, "What happened on which rank, and when")


def caption(diagnosis: Diagnosis) -> str:
    """What must be known to read the picture."""
    times = sorted(mark.time.astimezone(UTC) for row in _rows(diagnosis) for mark in row.marks if mark.time)
    if not times:
        return "No line has a time: marks stand in the order of files and their lines, which says nothing of when."
    first, last = times[0], times[-1]
    days = f"{first:%-d %b %Y}" + (f" to {last:%-d %b %Y}" if first.date() != last.date() else "")
    most = any(len(cause.evidence) >= MOST_EVIDENCE for _, _, cause in _causes(diagnosis))
    more = f" Of each cause the first {MOST_EVIDENCE} lines are shown: others may have said the same." if most else ""
    return f"{days}, in UTC, as which a time without a zone is read. Clocks of nodes may differ.{more}"


def sign(kind: Sign, x: float = 8, y: float = 8) -> Markup:
    """A mark, each of a form of its own beside its colour."""
    form = {
        Sign.CAUSE: "M{x},{t} L{r},{y} L{x},{b} L{l},{y} Z",
        Sign.OTHER: "M{x},{t} L{r},{b} L{l},{b} Z",
        Sign.CONSEQUENCE: "M{l},{y} a{h},{h} 0 1,0 {w},0 a{h},{h} 0 1,0 -{w},0 Z",
        Sign.STEP: "M{n},{t} L{m},{t} L{m},{b} L{n},{b} Z",
    }[kind]
    half = {Sign.CAUSE: 7.5, Sign.OTHER: 5.5, Sign.CONSEQUENCE: 4.5, Sign.STEP: 6.5}[kind]
    at = {"x": x, "y": y, "l": x - half, "r": x + half, "t": y - half, "b": y + half, "h": half, "w": 2 * half}
    at |= {"n": x - 2, "m": x + 2}
    path = form.format(**{name: f"{value:.1f}" for name, value in at.items()})
    return Markup('<path d="{}" class="sign {}"/>').format(path, kind.value)


def _rows(diagnosis: Diagnosis) -> list[Row]:
    """One for everybody of whom something is known, ranks first, in their order."""
    rows: dict[tuple[int, float, str], Row] = {}

    def of(rank: int | None, node: str | None, file: str) -> Row:
        if rank is not None:
            return rows.setdefault((0, rank, ""), Row(f"rank {rank}", ranks=(rank,)))
        if node:
            return rows.setdefault((1, 0, node), Row(node))
        return rows.setdefault((2, 0, file), Row(file.rpartition("/")[2]))

    for kind, anchor, cause in _causes(diagnosis):
        for i, each in enumerate(cause.evidence):
            mark = Mark(kind, each.time, each.file, each.line, _said(cause, each), f"{anchor}-{i}")
            of(each.rank, each.node, each.file).marks.append(mark)
    for step in diagnosis.last_steps:
        said = f"last step seen: {step.step:,} · {step.file}:{step.line}"
        row = of(step.rank, step.node, step.file)
        row.marks.append(Mark(Sign.STEP, step.time, step.file, step.line, said))
        row.step = step.step
    for rank in diagnosis.read.ranks:
        of(rank, None, "")
    for rank in diagnosis.read.missing_ranks:
        of(rank, None, "").missing = True
    cause = diagnosis.root_cause
    if cause.rank is not None:
        of(cause.rank, None, "").named = True
    if (1, 0, cause.node) in rows or (cause.node and cause.rank is None):
        of(None, cause.node, "").named = True
    return [rows[key] for key in sorted(rows)]


def _causes(diagnosis: Diagnosis) -> Iterable[tuple[Sign, str, Cause]]:
    yield Sign.CAUSE, "cause", diagnosis.root_cause
    for i, cause in enumerate(diagnosis.others):
        yield Sign.OTHER, f"other-{i}", cause
    for i, cause in enumerate(diagnosis.consequences):
        yield Sign.CONSEQUENCE, f"consequence-{i}", cause


def _said(cause: Cause, each: Evidence) -> str:
    times = f" ({each.count:,} times)" if each.count > 1 else ""
    clock = f"{each.time.astimezone(UTC):%H:%M:%S.%f}"[:-3] + " · " if each.time else ""
    return f"{clock}{cause.summary} · {each.where}{times}"


def _folded(rows: Sequence[Row]) -> list[Row]:
    """Those that say most, in their order, and below them a row for all others that stopped at the same step."""
    telling = [row for row in rows if row.worth < list(Sign).index(Sign.STEP)]
    telling.sort(key=lambda row: row.worth)
    shown, more = ({id(row) for row in some} for some in (telling[:FEW], telling[FEW:]))
    groups: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        if id(row) not in shown:
            say = "no line" if row.missing else "as above" if id(row) in more else ""
            order = 0 if say else 1 if row.step is not None else 2
            groups[order, say or (f"step {row.step:,}" if row.step is not None else "nothing known")].append(row)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], len(group[1])))
    if len(ordered) > MOST_FOLDED:
        rest = [row for _, members in ordered[MOST_FOLDED - 1 :] for row in members]
        ordered = [*ordered[: MOST_FOLDED - 1], ((2, "other steps"), rest)]
    return [row for row in rows if id(row) in shown] + [_one_of(said, members) for (_, said), members in ordered]


def _one_of(said: str, rows: Sequence[Row]) -> Row:
    ranks = tuple(rank for row in rows for rank in row.ranks)
    who = f"{len(ranks):,} ranks" if len(ranks) > 1 else rows[0].label if len(rows) == 1 else f"{len(rows):,} others"
    return Row(f"{who}: {said}", [mark for row in rows for mark in row.marks], ranks=ranks)


def _in_order(marks: Sequence[Mark], left: float, right: float) -> dict[Mark, float]:
    ordered = sorted({(mark.file, mark.number) for mark in marks})
    step = (right - left) / max(1, len(ordered) - 1)
    at = {where: left + step * i for i, where in enumerate(ordered)}
    return {mark: at[mark.file, mark.number] for mark in marks}


def _ruled(across: Axis, bottom: float) -> Iterable[Markup]:
    for x, label in across.ticks:
        yield line(x, _TOP - 6, x, bottom, "rule")
        yield text(x, _TOP - 16, label, "middle", "axis")
    for start, stop, label in across.breaks:
        middle = (start + stop) / 2
        yield Markup(
            '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="gap"><title>{}</title></rect>'
        ).format(start, _TOP - 6, stop - start, bottom - _TOP + 6, f"{label} in which no line was found")
        yield text(middle, _TOP - 30, label, "middle", "axis gap-name")


def _drawn(row: Row, y: float, place: dict[Mark, float], right: float) -> Iterable[Markup]:
    """The label and the marks of a row: those at one place are one, those too near each other moved apart."""
    many = len(row.ranks) > 1
    title = visible(f"ranks {ranges(row.ranks)}" if many else row.label, 300)
    shown = visible(row.label, 27)
    kind = "name blamed" if row.named else "name folded" if many else "name"
    yield Markup("<g><title>{}</title>{}</g>").format(title, text(14, y + 4, shown, "start", kind))
    if row.missing and not row.marks:
        yield text(_LEFT + 18, y + 4, "left no line", "start", "silent")
    if many:
        yield from _bands(row, y, place)
        return
    grouped: dict[tuple[int, Sign], list[Mark]] = defaultdict(list)
    for mark in row.marks:
        grouped[round(place[mark] / 6), mark.sign].append(mark)
    taken = -1.0
    backwards = list(Sign)[::-1]
    for (_, sort), marks in sorted(grouped.items(), key=lambda each: (each[0][0], backwards.index(each[0][1]))):
        x = min(max(place[marks[0]], taken + _APART), right)
        taken = x
        said = visible(marks[0].said, 400) + (f" and {len(marks) - 1:,} more" if len(marks) > 1 else "")
        drawn = Markup("<g><title>{}</title>{}</g>").format(said, sign(sort, x, y))
        anchor = marks[0].anchor
        yield Markup('<a href="#{}">{}</a>').format(anchor, drawn) if anchor else drawn


def _bands(row: Row, y: float, place: dict[Mark, float]) -> Iterable[Markup]:
    """Of many ranks: from the first to the last mark of each kind, where marks of their own would hide each other."""
    for sort in Sign:
        marks = [mark for mark in row.marks if mark.sign is sort]
        if marks:
            left, right = (limit(place[mark] for mark in marks) for limit in (min, max))
            yield Markup(
                '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="8" rx="2" class="{}"><title>{}</title></rect>'
            ).format(left - 2, y - 4, right - left + 4, sort.value, f"{WORDS[sort]}: {len(marks):,} lines")
