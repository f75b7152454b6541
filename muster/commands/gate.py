"""Commands for whoever signs a cluster off: gate, report."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.admission import unusable
from muster.commands.nodes import Json, Stack, files
from muster.console import Problem, document, result, say
from muster.efficiency import efficiency
from muster.look import look
from muster.standing import DEFAULT_STACK, standing
from policies import evidence
from policies.evidence import EvidenceError, Run
from policies.exits import Exit
from policies.gate import gate as decide
from policies.refusal import Refusal
from policies.report import write_report
from spec.deployment import CertificateClass


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("gate")(gate)
    app.command("report")(report)


def latest(reports: Path) -> Run | None:
    """The newest certification run; none where there is none yet."""
    if not (reports / evidence.LATEST / evidence.RUN).exists():
        return None
    try:
        return evidence.load(reports / evidence.LATEST)
    except EvidenceError as error:
        raise Problem(str(error)) from None


def gate(
    wanted: Annotated[CertificateClass, typer.Option("--class", help="What the certificates must be worth.")],
    stack: Stack = DEFAULT_STACK,
    lasting: Annotated[str, typer.Option("--for", help="How long the run will take, as in 90m, 36h, 7d.")] = "0m",
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Ask no node and no scheduler, whatever changed since."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Say go or no: whether every node that training would use holds a certificate that is good enough.

    It asks each of these nodes which hardware it is and the scheduler whether it would use it, and says no where one
    does not answer.
    """
    cluster = standing(stack)
    run_time = duration(lasting)
    run = latest(cluster.reports)
    now_there = None if offline else asyncio.run(look(cluster, say))
    unusable_now = None if offline else unusable(cluster)
    decision = decide(
        cluster.plan,
        cluster.envelopes(),
        cluster.trusted(),
        wanted,
        datetime.now(UTC),
        fabric=run.fabric if run else None,
        pins=cluster.pins.digest,
        images=cluster.deployment.images,
        identities=now_there,
        unusable=unusable_now,
        lasting=run_time,
        refused=last_refusals(cluster.refusals(), run),
    )
    if as_json:
        document({**decision.model_dump(mode="json"), "go": decision.go})
        return decision.exit_code
    for node in decision.ready:
        words = f"{node.node}: {node.certificate_class.value} certificate until {node.expires:%-d %b %H:%M} UTC"
        result(Text.assemble(("✓ ", "green"), words))
    for reason in decision.reasons:
        result(Text.assemble(("✗ ", "bold red"), f"{reason.subject}: {reason.message}"))
    ready = f"{len(decision.ready)} of {decision.expected} nodes ready for class {wanted.value}"
    ready += "" if decision.identified else ", their hardware not looked at"
    result(Text.assemble(("GO", "bold green") if decision.go else ("NO GO", "bold red"), f"  {ready}"))
    return decision.exit_code


def last_refusals(kept: Mapping[str, Refusal], run: Run | None) -> dict[str, Refusal]:
    """The last time that each node was refused: found at fault, or not certified by the newest run for any reason."""
    found = dict(kept)
    for name, given in run.awards.items() if run else ():
        if run and given.refused and (name not in found or found[name].at <= run.finished):
            found[name] = Refusal(node=name, at=run.finished, why="; ".join(given.refused))
    return found


UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """A span like 90m, 36h or 7d. Raises Problem where it is none."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    if not found:
        raise Problem(f"{text!r} is no span of time", advice="write it as 90m, 36h or 7d", exit=Exit.USAGE)
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def report(
    stack: Stack = DEFAULT_STACK,
    run: Annotated[str, typer.Option(help="The run: a folder's name in reports/STACK/.")] = evidence.LATEST,
    as_json: Json = False,
) -> int:
    """Write the report of a certification run again: one HTML page, JSON and JUnit."""
    cluster = standing(stack)
    folder = cluster.reports / run
    try:
        found = evidence.load(folder)
    except EvidenceError as error:
        raise Problem(str(error)) from None
    paths = write_report(found, folder, efficiency(folder))
    if as_json:
        document(files(paths))
    else:
        result(f"{paths.html}\n{paths.json}\n{paths.junit}")
    return Exit.PASS
