"""`muster diagnose` and `muster rules`: why a job died, hung or slowed down, and what is known about such lines."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.commands.history import seen_before
from muster.commands.live import look, print_standing
from muster.commands.nodes import Json
from muster.console import Problem, document, out, progress, result, table
from policies.evidence import write
from policies.exits import Exit
from policies.reading import PolicyError
from policies.report.names import ranges
from validation.diagnose.allocation import allocation_of
from validation.diagnose.finding import Cause, Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.kinds import Confidence, Symptom
from validation.diagnose.metrics.measured import Wanted
from validation.diagnose.page import page
from validation.diagnose.rule import Rule, RuleError, load_rules
from validation.diagnose.slurm import logs_of
from validation.diagnose.sources import SourceError

MOST_MEASURED = 8
"""Deviations of metrics on a terminal."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("diagnose")(diagnose)
    app.command("rules")(rules)


def diagnose(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Logs of a job, or folders of them: all ranks', and the nodes' kernel logs."),
    ] = None,
    job: Annotated[str, typer.Option(help="A Slurm job, as 4711 or 4711_3: finds its logs.")] = "",
    html: Annotated[Path | None, typer.Option(help="Write the diagnosis as a page with a timeline.")] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Look at a job that still runs: on all nodes of --job through Slurm, else on this one. "
            "Nothing of it is stopped.",
        ),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="With --live: keep what was seen, to be read again as PATHS.")
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="With --live: calls of C too. Each rank is stopped for it, for up to seconds."),
    ] = False,
    beside: Annotated[
        bool, typer.Option("--beside", help="With --job: write diagnosis-JOB.json and .html beside the job's log.")
    ] = False,
    history: Annotated[
        Path | None,
        typer.Option(envvar="MUSTER_HISTORY", help="The history's folder: also say what the named node did before."),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_METRICS",
            help="A Prometheus, as http://HOST:9090, asked for the job's time. Saved answers are read as files.",
        ),
    ] = "",
    as_json: Json = False,
) -> int:
    """Say why a job died, hung or slowed down: from its logs, NCCL's output, flight-recorder dumps, kernel logs."""
    if not paths and not job and not live:
        advice = "give the job's logs, --job with a Slurm job, or --live where it runs"
        raise Problem("nothing to read", advice=advice, exit=Exit.USAGE)
    if (save or native) and not live:
        raise Problem("--save and --native are for a job that runs", advice="give --live too", exit=Exit.USAGE)
    if beside and live:
        raise Problem("--beside is for a job that has ended", advice="give --save FOLDER", exit=Exit.USAGE)
    if beside and not job:
        raise Problem("--beside is for a Slurm job", advice="give --job, or --html FILE", exit=Exit.USAGE)
    try:
        seen = look(job, native, save) if live else []
        logs = logs_of(job) if job and not live else None
        with progress("reading") as show:
            every = [*(paths or ()), *(logs.paths if logs else ())]
            wanted, wrong = _wanted(metrics, job)
            found = read_job(every, lambda done, of: show(f"{done} of {of} files", False), metrics=wanted, live=seen)
    except SourceError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    except (RuleError, PolicyError) as error:
        raise Problem(str(error), exit=Exit.ERROR) from None
    if wrong:
        read = found.read.model_copy(update={"left_out": (*found.read.left_out, wrong)})
        found = found.model_copy(update={"read": read})
    if history:
        found = seen_before(found, history, job)
    if as_json:  # first: the job may have died of the disk that the files are for
        document(found.model_dump(mode="json"))
    if html:
        write(html, page(found))
    if logs and beside:
        write(logs.folder / f"diagnosis-{job}.json", json.dumps(found.model_dump(mode="json"), indent=1))
        write(logs.folder / f"diagnosis-{job}.html", page(found))
    if not as_json:
        _print(found)
        if save:
            result(f"kept in {save}: muster diagnose {save}")
        if html:
            result(f"page written to {html}")
    return Exit.PASS if found.root_cause.confidence is not Confidence.UNKNOWN else Exit.INCOMPLETE


def _wanted(url: str, job: str) -> tuple[Wanted, str]:
    """Whom to ask for metrics of which time and nodes; and why Slurm could not say which, where it could not."""
    if not url or not job:
        return Wanted(url), ""
    try:
        known = allocation_of(job)
    except SourceError as error:
        return Wanted(url), f"metrics: {error}; the time is that of the logs"
    return Wanted(url, known.start, known.end, known.nodes), ""


def _print(found: Diagnosis) -> None:
    """A summary that fits a screen."""
    cause = found.root_cause
    style = {Confidence.CERTAIN: "bold red", Confidence.LIKELY: "bold red", Confidence.POSSIBLE: "bold yellow"}
    result(Text.assemble((cause.summary, style.get(cause.confidence, "bold")), f"  ({cause.confidence.value})"))
    _evidence(cause)
    print_standing(found.standing, cause.rank)
    for title, causes in (("or else", found.others), ("only consequences", found.consequences)):
        if causes:
            result("")
            result(Text(title, "bold"))
        for other in causes:
            first = other.evidence[0] if other.evidence else None
            result(f"  {other.summary}" + (f" · {first.where}" if first else ""))
    for title, lines in (("check", found.checks), ("fix", found.fixes)):
        if lines:
            result("")
            result(Text(title, "bold"))
        for line in lines:
            result(f"  {line}")
    if found.measured:
        result("")
        result(Text("metrics", "bold"))
    for each in found.measured[:MOST_MEASURED]:
        result(f"  {f'{each.time:%H:%M:%S} ' if each.time else ''}{each.text.removeprefix('metrics: ')[:200]}")
    if len(found.measured) > MOST_MEASURED:
        result(f"  {len(found.measured) - MOST_MEASURED} more: --json lists them")
    result("")
    if found.retry_why:
        result(Text.assemble(("start it again? ", "bold"), found.retry_why))
    if found.before:
        result(Text.assemble(("seen before? ", "bold"), found.before.words))
    step = f" · last step seen {found.last_step}" if found.last_step is not None else ""
    read = found.read
    result(f"read {read.files} files, {read.lines:,} lines, {len(read.ranks)} ranks{step}")
    if read.missing_ranks:
        result(Text(f"no line of ranks {ranges(read.missing_ranks)[:80]}: their logs are missing", "yellow"))
    for missed in read.left_out[:4]:
        result(f"not read: {missed}")
    if len(read.left_out) > 4:
        result(f"not read: {len(read.left_out) - 4} more, --json lists them")


def _evidence(cause: Cause) -> None:
    for each in cause.evidence:
        times = f" ({each.count} times)" if each.count > 1 else ""
        result(f"  {each.where}{times}: {each.text[:160]}")


def rules(
    symptom: Annotated[
        str, typer.Argument(help=f"Only rules of this symptom: {', '.join(each.value for each in Symptom)}.")
    ] = "",
    as_json: Json = False,
) -> int:
    """List what `muster diagnose` knows, by symptom, with the sources."""
    if symptom and symptom not in set(Symptom):
        raise Problem(
            f"no symptom {symptom!r}", advice=f"one of {', '.join(each.value for each in Symptom)}", exit=Exit.USAGE
        )
    try:
        known = [rule for rule in load_rules() if symptom in ("", rule.symptom)]
    except RuleError as error:
        raise Problem(str(error), exit=Exit.ERROR) from None
    if as_json:
        document([rule.model_dump(mode="json") for rule in known])
        return Exit.PASS
    for each in Symptom:
        mine = [rule for rule in known if rule.symptom is each]
        if mine:
            result(Text(f"{each.value}: {each.words}", "bold"))
            out.print(_table(mine))
    return Exit.PASS


def _table(rules: list[Rule]) -> object:
    rows = table("rule", "role", "means", "sources")
    for rule in rules:
        rows.add_row(rule.id, rule.role.value, rule.title, " ".join(rule.sources))
    return rows
