"""`muster cost`: what GPU time was spent on, by job, user and week, and what a useful step cost."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.commands.nodes import Json
from muster.console import Problem, document, out, progress, result, table
from muster.efficiency import put, run_of, waited_for
from policies.exits import Exit
from policies.reading import PolicyError
from policies.reading import read as read_yaml
from policies.report.visible import visible
from runtime.telemetry.journal import history
from validation.efficiency import sacct
from validation.efficiency.account import report
from validation.efficiency.accounting import Accounting, AccountingError, parse
from validation.efficiency.figures import Report, Sum
from validation.efficiency.history import Cause, Run
from validation.efficiency.page import money, page, share
from validation.efficiency.pictures import NAMES, hours
from validation.efficiency.prices import Prices

JOURNAL = "goodput.jsonl"
DAYS = 28
"""That sacct is asked for where nothing else is said."""
MOST_ROWS = 20
"""Of a table on a terminal."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("cost")(cost)


def cost(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB,…=]FOLDER…",
            help="Telemetry folders of runs, with their goodput.jsonl. Jobs are found by the names of a run's starts; "
            "where torchrun named those, say them: 4242,4250=FOLDER.",
        ),
    ] = None,
    accounting: Annotated[
        Path | None, typer.Option(help="A file of `sacct --json`, or of its parsable text, instead of asking sacct.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help=f"Count GPU time from then on, UTC. Without a file: {DAYS} days back.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="Count GPU time up to then, UTC; at most now.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Only these users' jobs.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Of a GPU-hour that no more exact price is for.")] = None,
    prices: Annotated[
        Path | None, typer.Option(help="YAML with currency, gpu_hour, partitions and models (price by name).")
    ] = None,
    currency: Annotated[str, typer.Option(help="What prices are in.")] = "",
    html: Annotated[Path | None, typer.Option(help="Write the page, with pictures, into this file.")] = None,
    stack: Annotated[
        str | None, typer.Option(help="Show it in the report of this stack's newest certification run too.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what GPU time was spent on and what useful steps cost, from Slurm's accounting and the runs' journals."""
    now = time.time()
    begin, end = (each.replace(tzinfo=UTC).timestamp() if each else None for each in (since, until))
    if begin is not None and begin >= (end if end is not None else now):
        raise Problem("--since is not before --until or now", advice="swap them", exit=Exit.USAGE)
    if begin is None and accounting is None:
        begin = (end if end is not None else now) - timedelta(days=DAYS).total_seconds()
    if stack and user:
        raise Problem("the report of a cluster is of all users", advice="leave --user or --stack out", exit=Exit.USAGE)
    examined = run_of(stack) if stack else None
    priced = _prices(prices, price, currency)
    told = [_run(each) for each in runs or ()]
    try:
        found = _accounting(accounting, begin, end if end is not None else now, user or ())
    except AccountingError as wrong:
        raise Problem(str(wrong), exit=Exit.USAGE if accounting else Exit.ERROR) from None
    if user:
        found = found.model_copy(update={"jobs": tuple(each for each in found.jobs if each.user in user)})
    made = report(found, told, priced, now, begin, end)
    if html:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(made), encoding="utf-8", errors="replace")
    written = put(made, *examined) if examined else None
    if as_json:
        document(made.model_dump(mode="json"))
    else:
        _print(made)
        if html:
            result(f"page: {html}")
        if written:
            result(f"report: {written}")
    return Exit.INCOMPLETE if made.problems else Exit.PASS


def _accounting(file: Path | None, begin: float | None, end: float, users: Sequence[str]) -> Accounting:
    if file is not None:
        return parse(sacct.read(file))
    with progress("asking sacct"):
        return sacct.ask(datetime.fromtimestamp(begin or 0.0, UTC), datetime.fromtimestamp(end, UTC), users)


def _prices(file: Path | None, price: float | None, currency: str) -> Prices:
    """The file's prices, with what the command line says in their place. Raises Problem."""
    try:
        read = read_yaml(file, Prices) if file else Prices()
    except PolicyError as wrong:
        raise Problem(str(wrong), exit=Exit.USAGE) from None
    more: dict[str, Any] = {} if price is None else {"gpu_hour": price}
    try:
        return Prices.model_validate({**read.model_dump(), **more, **({"currency": currency} if currency else {})})
    except ValueError:
        raise Problem("no price or no currency", advice="a number, and at most 8 letters", exit=Exit.USAGE) from None


def _run(argument: str) -> Run:
    """A run's journal by the command's argument. Raises Problem."""
    head, sign, tail = argument.partition("=")
    named = bool(sign) and all(each.isascii() and each.isdigit() for each in head.split(","))
    folder = Path(tail if named else argument)
    file = folder / JOURNAL if folder.is_dir() else folder
    if not file.is_file():
        raise Problem(
            f"no {JOURNAL}", where=str(folder), advice="give the folder that the run's telemetry has", exit=Exit.USAGE
        )
    return Run(str(folder), tuple(history(file)), frozenset(head.split(",")) if named else frozenset())


def _print(made: Report) -> None:
    total = made.total
    begin, end = (datetime.fromtimestamp(each, UTC) for each in (made.begin_s, made.end_s))
    result(Text(f"{begin:%-d %b %Y %H:%M} to {end:%-d %b %Y %H:%M} UTC", style="bold"))
    result(
        f"{total.jobs} jobs held {hours(total.gpu_hours)} GPU-hours · cost {money(total.cost, made.currency)} · "
        f"goodput {share(total.goodput)} of what journals explain"
    )
    result("")
    rows = table("GPU time", "GPU-hours", "share", "measured over")
    for cause in Cause:
        spent = total.causes[cause]
        part = spent.gpu_hours / total.gpu_hours if spent.gpu_hours is not None and total.gpu_hours > 0 else None
        over = "not measured" if spent.gpu_hours is None else f"{hours(spent.measured_gpu_hours)} GPU-hours"
        rows.add_row(NAMES[cause], hours(spent.gpu_hours), share(part), over)
    out.print(rows)
    result("")
    waited = (
        "not known"
        if total.queue_hours is None
        else f"{hours(total.queue_hours)} h in {total.queue_measured_jobs} jobs"
    )
    steps = "not measured" if total.useful_steps is None else f"{total.useful_steps:,.0f}"
    per_cost = total.useful_steps_per_cost
    result(
        f"queue: {waited} · useful steps: {steps}"
        + ("" if per_cost is None else f", {per_cost:.4g} per {made.currency or 'unit of cost'}")
    )
    result(f"GPU busy: {_or_not(total.gpu_busy)} · communication: {_or_not(total.communication)} of step time")
    _tables("week", [(week.week, week) for week in made.weeks], made.currency)
    _tables("user", _most([(user.user, user) for user in made.users]), made.currency)
    _tables("job", _most([(job.id, job) for job in made.jobs]), made.currency)
    for index, line in enumerate(waited_for(made.jobs)):
        result(("" if index else "\n") + visible(line, 200))
    result("")
    result("– means not measured, which is not zero")
    for problem in made.problems:
        result(Text(f"not counted: {visible(problem, 400)}", style="yellow"))


def _most(found: list[tuple[str, Sum]]) -> list[tuple[str, Sum]]:
    return sorted(found, key=lambda each: (-each[1].gpu_hours, each[0]))


def _tables(title: str, found: Sequence[tuple[str, Sum]], currency: str) -> None:
    result("")
    out.print(_table(title, found[-MOST_ROWS:] if title == "week" else found[:MOST_ROWS], currency))
    if len(found) > MOST_ROWS:
        result(f"{len(found) - MOST_ROWS} more: --json and --html show them")


def _table(title: str, found: Sequence[tuple[str, Sum]], currency: str) -> object:
    lost = [Cause.START, Cause.CHECKPOINT, Cause.DATA, Cause.FAILURE, Cause.STRAGGLER, Cause.IDLE, Cause.UNKNOWN]
    short = [NAMES[cause].split(" ")[0] for cause in lost[:-1]]
    rows = table(title, "GPU-hours", "cost", "goodput", *short, "not explained", "queue h", "steps", "busy", "comm.")
    for label, each in found:
        rows.add_row(
            visible(label, 32) or "(no name)",
            hours(each.gpu_hours),
            money(each.cost, currency),
            share(each.goodput),
            *(hours(each.causes[cause].gpu_hours) for cause in lost),
            hours(each.queue_hours),
            "–" if each.useful_steps is None else f"{each.useful_steps:,.0f}",
            share(each.gpu_busy),
            share(each.communication),
        )
    return rows


def _or_not(value: float | None) -> str:
    return "not measured" if value is None else share(value)
