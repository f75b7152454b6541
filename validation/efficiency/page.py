"""The report on cost as one HTML page that needs nothing beside it: no network, no other file, no script."""

from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from policies.report.template import environment, style
from validation.efficiency.figures import Report
from validation.efficiency.history import Cause
from validation.efficiency.pictures import NAMES, bars, hours

_HERE = Path(__file__).parent
MOST_JOBS = 500
"""Rows of the page's longest table; the JSON has all jobs."""
MOST_BARS = 60


def page(report: Report) -> str:
    """The page's HTML. Pure: the same report gives the same page."""
    made = environment(_HERE)
    made.filters.update(hours=hours, share=share, money=money, day=_day)
    dearest = sorted(report.jobs, key=lambda each: (-each.gpu_hours, each.cluster, each.id, each.start_s))
    users = sorted(report.users, key=lambda each: (-each.gpu_hours, each.user))
    return made.get_template("page.html.j2").render(
        report=report,
        total=report.total,
        jobs=dearest[:MOST_JOBS],
        users=users,
        causes=Cause,
        names=NAMES,
        lost=[each for each in Cause if each not in (Cause.USEFUL, Cause.UNKNOWN)],
        weeks=bars([(each.week, each) for each in report.weeks[-MOST_BARS:]]),
        people=bars([(each.user or "(no name)", each) for each in users[:MOST_BARS]]),
        style=style() + Markup((_HERE / "page.css").read_text()),  # noqa: S704 - the package's own file
    )


def share(value: float | None) -> str:
    """`63.1%`; a dash where it was not measured."""
    return "–" if value is None else f"{value:.1%}"


def money(value: float | None, currency: str) -> str:
    """`1,204.50 EUR`; a dash where there is no price."""
    return "–" if value is None else f"{value:,.2f} {currency}".rstrip()


def _day(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%-d %b %Y, %H:%M}"
