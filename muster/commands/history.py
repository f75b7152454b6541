"""`muster history` and `muster history-add`: which nodes let jobs die, how often, of what."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from muster.commands.nodes import Json
from muster.console import Problem, document, out, result, table
from policies.exits import Exit
from policies.reading import PolicyError
from policies.report.visible import visible
from validation.diagnose.allocation import NODE, Allocation, allocation_of, expanded, short
from validation.diagnose.finding import Before, Diagnosis
from validation.diagnose.history import (
    History,
    Limits,
    NothingToRecord,
    Refused,
    before,
    history,
    incident,
    load_limits,
)
from validation.diagnose.records import HistoryError, add, records
from validation.diagnose.rule import Rule, RuleError, load_rules
from validation.diagnose.slurm import ID, parts_of
from validation.diagnose.sources import SourceError

LARGEST = 4 << 20
"""Bytes of a diagnosis that are taken in: a job of 4,096 ranks has 600 KiB."""
MOST_SHOWN = 40
"""Nodes on a terminal."""
GPUS = Path("/proc/driver/nvidia/gpus")

Folder = Annotated[
    Path | None,
    typer.Option("--folder", envvar="MUSTER_HISTORY", help="The history's folder, on a disk that all nodes share."),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("history")(show)
    app.command("history-add")(append)


def show(
    nodes: Annotated[list[str] | None, typer.Argument(help="Names of nodes; all where none is given.")] = None,
    folder: Folder = None,
    since: Annotated[str, typer.Option(help="How far back, as 30d or 12h. Else as history.yaml has it.")] = "",
    as_json: Json = False,
) -> int:
    """Say which nodes let jobs die, how often and of what, and what to do. The last to do so comes first."""
    rules, limits = _known()
    now = datetime.now(UTC)
    span = _span(since) if since else timedelta(days=limits.days)
    try:
        found, wrong = records(_folder(folder), now - span)
    except HistoryError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    told = history(found, now - span, now, rules, limits, nodes or (), wrong)
    if as_json:
        document(told.model_dump(mode="json"))
    else:
        _print(told, span)
    return Exit.INCOMPLETE if told.not_read else Exit.PASS


def append(
    job: Annotated[str, typer.Option(help="The Slurm job whose diagnosis it is.")],
    file: Annotated[Path | None, typer.Argument(help="What muster diagnose --json said; else standard input.")] = None,
    nodes: Annotated[str, typer.Option(help="The job's nodes, as Slurm wrote them for the epilog.")] = "",
    user: Annotated[str, typer.Option(help="Whose job it is; else Slurm is asked.")] = "",
    here: Annotated[str, typer.Option(help="The name that Slurm has for this node: its GPU is kept by its UUID.")] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """Keep what a job's diagnosis says of its node. For an epilog: whoever may write the folder.

    It takes in only what concerns one of the job's own nodes, a run of a job once, and none of the diagnosis' texts.
    """
    rules, _ = _known()
    kept = _folder(folder)
    try:
        allocation = _allocation(job, nodes, user)  # while the diagnosis is being made
        new = incident(_diagnosis(file), allocation, datetime.now(UTC), rules)
        if here == new.node and new.gpu:
            new = new.model_copy(update={"gpu_uuid": _uuid(new.gpu)})
        path = add(kept, new)
    except NothingToRecord as why:
        if as_json:
            document({"kept": None, "incident": None, "why": str(why)})
        else:
            result(f"nothing to keep: {why}")
        return Exit.PASS
    except (Refused, SourceError) as error:
        raise Problem(str(error), exit=Exit.FAIL) from None
    except HistoryError as error:
        raise Problem(str(error), exit=Exit.ERROR) from None
    if as_json:
        document({"kept": str(path), "incident": new.model_dump(mode="json"), "why": None})
    else:
        result(f"kept: {new.node}, {new.kind}, job {new.job}: {path}")
    return Exit.PASS


def seen_before(told: Diagnosis, folder: Path, job: str) -> Diagnosis:
    """The diagnosis with what the named node did before. What cannot be read of the history is said as not read."""
    cause = told.root_cause
    if cause.node is None or NODE.fullmatch(cause.node) is None:
        return told
    limits, now = _known()[1], datetime.now(UTC)
    since = now - timedelta(days=limits.days)
    names = dict.fromkeys((cause.node, short(cause.node)))
    made: Before | None = None
    job = _number(job)
    try:
        found, wrong = records(folder, since, tuple(names))
        there = next((name for name in names if any(each.node == name for each in found)), cause.node)
        made = before(there, cause.kind, found, now, limits.days, job)
    except HistoryError as error:
        wrong = [str(error)]
    read = told.read.model_copy(update={"left_out": (*told.read.left_out, *wrong)})
    return told.model_copy(update={"before": made, "read": read})


def _number(job: str) -> str:
    """Of a task of an array that which Slurm counts it by, as records do; what it was where Slurm does not say."""
    if job.isdecimal() or ID.fullmatch(job) is None:
        return job
    try:
        return allocation_of(job).job
    except SourceError:
        return job


def _known() -> tuple[dict[str, Rule], Limits]:
    try:
        return {rule.id: rule for rule in load_rules()}, load_limits()
    except (RuleError, PolicyError) as error:
        raise Problem(str(error), exit=Exit.ERROR) from None


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise Problem("no history is named", advice="give --folder, or set MUSTER_HISTORY", exit=Exit.USAGE)
    return folder


def _span(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,4})([dh])", text)
    if found is None or not int(found[1]):
        raise Problem(f"--since {text!r} is no time", advice="as 30d or 12h", exit=Exit.USAGE)
    return timedelta(**{"days" if found[2] == "d" else "hours": int(found[1])})


def _diagnosis(file: Path | None) -> Diagnosis:
    where = str(file or "standard input")
    if file is None:
        raw = sys.stdin.buffer.read(LARGEST + 1)
    else:
        with file.open("rb") as opened:
            raw = opened.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise Problem(f"more than {LARGEST >> 20} MiB", where=where, advice="it is no diagnosis", exit=Exit.FAIL)
    if not raw.strip():
        raise Problem(
            "no diagnosis came", where=where, advice="see what muster diagnose says by itself", exit=Exit.FAIL
        )
    try:
        return Diagnosis.model_validate_json(raw)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        field = visible(".".join(map(str, first["loc"])), 80) or "it"  # it may be a name that a user made up
        what = f"no diagnosis: {field}: {visible(first['msg'], 200)}"
        raise Problem(what, where=where, advice="give what muster diagnose --json says", exit=Exit.FAIL) from None


def _allocation(job: str, nodes: str, user: str) -> Allocation:
    """As Slurm has it; nodes and user as the epilog was told where it was. Raises SourceError."""
    parts_of(job)
    try:
        asked = allocation_of(job)
    except SourceError:
        if not nodes or not job.isdecimal():
            raise
        asked = Allocation(job, user, ())
    # Of a job that is being ended, Slurm may name only the nodes that are not yet done with it.
    return Allocation(asked.job, user or asked.user, expanded(nodes) if nodes else asked.nodes, asked.start, asked.end)


def _uuid(gpu: str) -> str | None:
    """Of the GPU at an address, as the driver's files say, which never wait for the device."""
    if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", gpu) is None:
        return None
    try:
        text = (GPUS / gpu / "information").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]{1,60})\s*$", text, re.MULTILINE)
    return found[1] if found else None


def _print(told: History, span: timedelta) -> None:
    days = f"{span.days} days" if span.days else f"{span.seconds // 3600} hours"
    if told.nodes:
        rows = table("node", "jobs", "users", "kind", "GPU", "last", "elsewhere", "says")
        for node in told.nodes[:MOST_SHOWN]:
            for number, each in enumerate(node.kinds):
                nodes = "1 node" if each.other_nodes == 1 else f"{each.other_nodes} nodes"
                elsewhere = f"{nodes}, at most {each.other_most}" if each.other_nodes else "nowhere"
                rows.add_row(
                    "" if number else node.node,
                    str(each.jobs) if each.jobs == each.sure else f"{each.jobs}, {each.sure} sure",
                    str(each.users),
                    each.kind,
                    ", ".join(each.gpus[:4]),
                    f"{each.last:%-d %b %H:%M}",
                    elsewhere,
                    Text(each.verdict.value, "bold red" if each.verdict.value == "repeats" else ""),
                )
        out.print(rows)
        if len(told.nodes) > MOST_SHOWN:
            result(f"{len(told.nodes) - MOST_SHOWN} more nodes: --json lists them")
        for node in told.nodes[:MOST_SHOWN]:
            for said in (*node.exchanged, *node.advice):
                result(Text.assemble((f"{node.node}  ", "bold"), said))
    elif not told.nothing_of:
        result(f"no job is known to have died on a node in {days}")
    if told.nothing_of:
        result(f"no job is known to have died in {days} on {', '.join(told.nothing_of)}")
    for missed in told.not_read:
        result(Text(f"not read: {missed}", "yellow"))
