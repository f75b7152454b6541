"""A diagnosis as one HTML page that needs nothing beside it: no network, no other file, no script."""

from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from policies.report.names import fold, ranges
from policies.report.template import environment, style
from validation.diagnose.finding import Diagnosis, Evidence
from validation.diagnose.kinds import Confidence, Retry
from validation.diagnose.timeline import WORDS, Sign, caption, sign, timeline

SURE = {
    Confidence.CERTAIN: "The lines below name it, and nothing that was read speaks against it.",
    Confidence.LIKELY: "The lines below point to it. Check it before you act on it.",
    Confidence.POSSIBLE: "It is one of several things that this could be. Check it first.",
    Confidence.UNKNOWN: "No line that was read names a cause, and this page does not guess.",
}

AGAIN = {
    Retry.YES: "yes",
    Retry.OTHER_NODE: "on other nodes",
    Retry.AFTER_FIX: "after the fix",
    Retry.NO: "no",
    Retry.UNKNOWN: "not known",
}

_HERE = Path(__file__).parent


def page(diagnosis: Diagnosis) -> str:
    """The page's HTML. Pure: the same diagnosis gives the same page."""
    cause = diagnosis.root_cause
    whom = {"rank": cause.rank, "node": cause.node, "GPU": cause.gpu, "peer": cause.peer, "rail": cause.rail}
    made = environment(_HERE)
    made.filters.update(ranges=ranges, fold=fold, sign=sign, clock=_clock, day=_day, told=_told)
    return made.get_template("page.html.j2").render(
        diagnosis=diagnosis,
        cause=cause,
        whom={name: value for name, value in whom.items() if value is not None},
        confidences=Confidence,
        sure=SURE,
        again=AGAIN,
        timeline=timeline(diagnosis),
        caption=caption(diagnosis),
        signs=Sign,
        words=WORDS,
        style=style() + Markup((_HERE / "page.css").read_text()),  # noqa: S704 - the package's own file
    )


def _clock(time: datetime) -> str:
    return f"{time.astimezone(UTC):%H:%M:%S}"


def _day(time: datetime) -> str:
    return f"{time.astimezone(UTC):%-d %b %Y}"


def _told(each: Evidence) -> str:
    """Who wrote a line, and when, as far as it is known."""
    parts = (
        f"{_day(each.time)}, {_clock(each.time)}" if each.time else "",
        f"rank {each.rank}" if each.rank is not None else "",
        each.node or "",
        f"{each.count:,} times" if each.count > 1 else "",
    )
    return " · ".join(filter(None, parts))
