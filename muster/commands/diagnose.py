"""`muster diagnose` and `muster rules`: why a job died, hung or slowed down, and what is known about such lines."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.commands.live import look, print_standing
from muster.commands.nodes import Json
from muster.console import Problem, document, out, progress, result, table
from policies.evidence import write
from policies.exits import Exit
from validation.diagnose.finding import Cause, Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.kinds import Confidence, Symptom
from validation.diagnose.page import page
from validation.diagnose.rule import Rule, RuleError, load_rules
from validation.diagnose.slurm import logs_of
from validation.diagnose.sources import SourceError


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
            found = read_job(every, lambda done, of: show(f"{done} of {of} files", False), live=seen)
    except SourceError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    except RuleError as error:
        raise Problem(str(error), exit=Exit.ERROR) from None
    if html:
        write(html, page(found))
    if logs and beside:
        write(logs.folder / f"diagnosis-{job}.json", json.dumps(found.model_dump(mode="json"), indent=1))
        write(logs.folder / f"diagnosis-{job}.html", page(found))
    if as_json:
        document(found.model_dump(mode="json"))
    else:
        _print(found)
        if save:
            result(f"kept in {save}: muster diagnose {save}")
        if html:
            result(f"page written to {html}")
    return Exit.PASS if found.root_cause.confidence is not Confidence.UNKNOWN else Exit.INCOMPLETE


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
    result("")
    if found.retry_why:
        result(Text.assemble(("start it again? ", "bold"), found.retry_why))
    step = f" · last step seen {found.last_step}" if found.last_step is not None else ""
    read = found.read
    result(f"read {read.files} files, {read.lines:,} lines, {len(read.ranks)} ranks{step}")
    for each in read.left_out[:4]:
        result(f"not read: {each}")
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
