"""What GPU time went into, beside a certification run: put there by `muster cost --stack`, shown by its report."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import fsum
from pathlib import Path

from muster.console import Problem
from muster.standing import standing
from policies import evidence
from policies.evidence import EvidenceError
from policies.report import Efficiency, write_report
from policies.report.efficiency import Figure
from validation.efficiency.figures import JobFigures, Report
from validation.efficiency.history import Cause
from validation.efficiency.page import MOST_BARS, money, own_style, page, share, slow_nodes
from validation.efficiency.pictures import bars, hours, legend

FILE, PAGE = "cost.json", "cost.html"
MOST_BYTES = 256 << 20
"""Of a file of figures: about 100,000 jobs."""
MOST_SLOW = 5
"""Nodes that ranks waited for, where only the worst are named."""
LEAST = 0.01
"""Of the GPU time of these jobs, what ranks waited for a node that is named there."""


def run_of(stack: str) -> tuple[evidence.Run, Path]:
    """A cluster's newest certification run and its folder. Raises Problem where there is none."""
    folder = standing(stack).reports / evidence.LATEST
    try:
        return evidence.load(folder), folder
    except EvidenceError as error:
        raise Problem(str(error)) from None


def put(made: Report, run: evidence.Run, folder: Path) -> Path:
    """Writes figures and their page beside a run, and the run's report again; the report. Raises OSError."""
    evidence.write(folder / FILE, made.model_dump_json())
    evidence.write(folder / PAGE, page(made))
    return write_report(run, folder, shown(made)).html


def efficiency(folder: Path) -> Efficiency | None:
    """What the report of the run in a folder shows; None where nothing was put there. Raises Problem."""
    path = folder / FILE
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise Problem(f"more than {MOST_BYTES >> 20} MiB", where=str(path), advice="remove it: no cost is so long")
        return shown(Report.model_validate_json(text, strict=False))
    except FileNotFoundError:
        return None
    except OSError as refused:
        raise Problem(str(refused.strerror), where=str(path), advice="make it readable, or remove it") from None
    except (ValueError, ArithmeticError):
        advice = "run muster cost with --stack again, or remove it"
        raise Problem("these are no figures of this version", where=str(path), advice=advice) from None


def shown(made: Report) -> Efficiency:
    """The figures as the report of a cluster shows them."""
    total = made.total
    stragglers, unknown = total.causes[Cause.STRAGGLER], total.causes[Cause.UNKNOWN]
    per_cost = "–" if total.useful_steps_per_cost is None else f"{total.useful_steps_per_cost:.4g}"
    return Efficiency(
        begin=datetime.fromtimestamp(made.begin_s, UTC),
        end=datetime.fromtimestamp(made.end_s, UTC),
        figures=(
            Figure("GPU-hours held", hours(total.gpu_hours), f"{total.jobs} jobs; {money(total.cost, made.currency)}"),
            Figure(
                "Goodput",
                share(total.goodput),
                f"of what journals explain; {hours(unknown.gpu_hours)} GPU-hours are not",
            ),
            Figure(f"Useful steps per {made.currency or 'cost'}", per_cost, "jobs with a journal and a price"),
            Figure(
                "Waited for stragglers",
                hours(stragglers.gpu_hours),
                f"GPU-hours; measured over {hours(stragglers.measured_gpu_hours)}",
            ),
            Figure(
                "GPU busy · communication",
                share(total.gpu_busy),
                f"measured over {hours(total.gpu_busy_measured_gpu_hours)} and "
                f"{hours(total.communication_measured_gpu_hours)} GPU-hours",
                beside=share(total.communication),
            ),
        ),
        picture=bars([(each.week, each) for each in made.weeks[-MOST_BARS:]]),
        legend=legend(total),
        style=own_style(),
        slowest=waited_for(made.jobs),
        problems=len(made.problems),
        page=PAGE,
    )


def waited_for(jobs: Sequence[JobFigures]) -> list[str]:
    """The nodes that ranks waited for most, each in a line; none that matters little in the jobs that it was in."""
    told = []
    slow = [each for each in slow_nodes(jobs) if each[1] >= LEAST * fsum(job.gpu_hours for job, _ in each[2])]
    for node, waited, them in slow[:MOST_SLOW]:
        job, one = them[0]
        ranks = ", ".join(map(str, one.ranks[:4])) + (", …" if len(one.ranks) > 4 else "")
        where = f", in {', '.join(one.phases[:3])}" if one.phases else ""
        more = f" and {len(them) - 1} more" if len(them) > 1 else ""
        told.append(f"waited for {node}: {hours(waited)} GPU-hours, in job {job.id}{more} (rank {ranks}{where})")
    return told
