"""The report on cost as one HTML page that needs nothing beside it: no network, no other file, no script."""

from collections.abc import Iterable
from datetime import UTC, datetime
from math import fsum
from pathlib import Path

from markupsafe import Markup

from policies.report.template import environment, style
from validation.efficiency.figures import JobFigures, Report, Slowest
from validation.efficiency.history import Cause
from validation.efficiency.pictures import NAMES, bars, busy_and_talking, hours, legend

_HERE = Path(__file__).parent
MOST_JOBS = 500
"""Rows of the page's longest table; the JSON has all jobs."""
MOST_BARS = 60
MOST_NODES = 100


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
        legend=legend(report.total),
        weeks=bars([(each.week, each) for each in report.weeks[-MOST_BARS:]]),
        people=bars([(each.user or "(no name)", each) for each in users[:MOST_BARS]]),
        use=busy_and_talking(report.jobs),
        both=sum(each.gpu_busy is not None and each.communication is not None for each in report.jobs),
        slow=slow_nodes(report.jobs)[:MOST_NODES],
        style=style() + own_style(),
    )


def own_style() -> Markup:
    """The colours of the causes, beside the style of all pages."""
    return Markup((_HERE / "page.css").read_text())  # noqa: S704 - the package's own file


def slow_nodes(jobs: Iterable[JobFigures]) -> list[tuple[str, float, list[tuple[JobFigures, Slowest]]]]:
    """Nodes that ranks waited for: GPU-hours, and in which jobs. What was waited for most comes first."""
    found: dict[str, list[tuple[JobFigures, Slowest]]] = {}
    for job in jobs:
        for each in job.slowest:
            found.setdefault(each.node, []).append((job, each))
    waited = {node: fsum(each.gpu_hours for _, each in them) for node, them in found.items()}
    return [
        (node, waited[node], sorted(found[node], key=lambda pair: (-pair[1].gpu_hours, pair[0].id)))
        for node in sorted(found, key=lambda node: (-waited[node], node))
    ]


def share(value: float | None) -> str:
    """`63.1%`; a dash where it was not measured."""
    return "–" if value is None else f"{value:.1%}"


def money(value: float | None, currency: str) -> str:
    """`1,204.50 EUR`; a dash where there is no price."""
    return "–" if value is None else f"{value:,.2f} {currency}".rstrip()


def _day(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%-d %b %Y, %H:%M}"
