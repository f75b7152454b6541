"""From a Prometheus, or from its saved answers, to what rules find in them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from validation.diagnose.finding import Evidence, Found, Line
from validation.diagnose.metrics import prometheus
from validation.diagnose.metrics.deviations import told
from validation.diagnose.metrics.places import Window
from validation.diagnose.metrics.series import LARGEST, Series, incomplete, parse
from validation.diagnose.metrics.signals import load_signals
from validation.diagnose.rule import Rule
from validation.diagnose.sources import Source, SourceError
from validation.diagnose.times import job_time

MOST_SHOWN = 24
"""Deviations that an answer holds."""


@dataclass(frozen=True)
class Wanted:
    """What is to be asked of whom, and which time and nodes are the job's, as far as its scheduler says."""

    url: str = ""
    start: datetime | None = None
    end: datetime | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What was found, what could not be read, and how much was."""

    found: tuple[Found, ...] = ()
    left_out: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What metrics say, whether it is the cause or not."""
        seen = dict.fromkeys(each.line for each in self.found)
        ordered = sorted(seen, key=lambda line: (line.time is None, line.time, line.text))
        return tuple(
            Evidence(file=line.file, line=0, text=line.text[:400], time=line.time, rank=line.rank, node=line.node)
            for line in ordered[:MOST_SHOWN]
        )


def measured(
    answers: Sequence[Source],
    wanted: Wanted,
    found: Sequence[Found],
    rules: Sequence[Rule],
    nodes: Iterable[str] = (),
) -> Measured:
    """What metrics say of a job of which `found` is known, and `nodes` by the names of its files.

    Never raises SourceError: what cannot be read is said as left out.
    """
    if not answers and not wanted.url:
        return Measured()
    signals = load_signals()
    named = dict.fromkeys((*nodes, *(node for each in found if (node := each.takes.get("node") or each.line.node))))
    window, whole = _windows(wanted, found, {rule.id: rule for rule in rules}, tuple(named))
    series: list[Series] = []
    left_out: list[str] = []
    files = size = 0
    for each in answers:
        try:
            raw = _raw(each)
            series += parse(raw, str(each.path))
            files, size = files + 1, size + len(raw)
            if part := incomplete(raw, str(each.path)):
                left_out.append(part)
            if sum(len(one.times) for one in series) > prometheus.MOST_POINTS:
                left_out.append(f"{each.path}: too many points in all · what comes after it was not read")
                break
        except SourceError as wrong:
            left_out.append(str(wrong))
    lines = list(told(series, signals, _name(answers), window)) if series else []
    if wanted.url and whole is None:
        left_out.append("metrics: nothing that was read says when and where the job ran · give --job")
    elif wanted.url and whole is not None:
        names = [name for signal in signals for metric in signal.metrics for name in metric.names]
        asked, wrong_ = prometheus.ask(wanted.url, names, whole)
        left_out += wrong_
        if not asked and not wrong_:
            left_out.append(
                "metrics: the Prometheus knows nothing of these nodes and that time · look at their names in it"
            )
        lines += told(asked, signals, "metrics", whole)
    return Measured(tuple(_known(lines, rules)), tuple(left_out), files, size)


def _windows(
    wanted: Wanted, found: Sequence[Found], rules: Mapping[str, Rule], named: tuple[str, ...]
) -> tuple[Window, Window | None]:
    """The job's time and nodes for answers that are there, and for what is asked: none where either is not known.

    Of all nodes nobody is asked: what other jobs' nodes have is nothing of this one. Answers that were saved were
    chosen by a person.
    """
    start, end = wanted.start, wanted.end
    if start is None and (ours := job_time((each for each in found if each.rule in rules), rules)) is not None:
        start, end = ours.start, ours.end
    window = Window(start.timestamp() if start else None, end.timestamp() if end else None, wanted.nodes)
    if start is None or not (wanted.nodes or named):
        return window, None
    return window, prometheus.window_of(start, end or prometheus.now(), wanted.nodes or named)


def _raw(source: Source) -> bytes:
    pieces, size = [], 0
    for piece in source.chunks():
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise SourceError(f"{source.path}: more than {LARGEST >> 20} MiB · save a shorter time or fewer nodes")
    return b"".join(pieces)


def _name(answers: Sequence[Source]) -> str:
    return answers[0].name if len(answers) == 1 else "metrics"


def _known(lines: Iterable[tuple[Line, datetime]], rules: Sequence[Rule]) -> Iterator[Found]:
    """Only rules on metrics, and on Xids, which are written as the kernel does: labels are nobody's words."""
    mine = [rule for rule in rules if rule.id.startswith(("metrics.", "xid."))]
    for line, last in lines:
        for rule in mine:
            if (takes := rule.search(line.text)) is not None:
                yield Found(rule.id, line, takes, 1, last, line.time)
