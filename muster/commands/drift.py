"""`muster drift`: what is no longer as it was declared and certified."""

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from muster.admission import admit
from muster.certify import observe, withdraw
from muster.commands.nodes import Json, Stack, applied, problems
from muster.console import document, progress, result, say
from muster.drift import drift as compare_all
from muster.standing import DEFAULT_STACK, standing
from policies.drift import DriftReport
from policies.exits import Exit


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("drift")(drift)


def drift(
    stack: Stack = DEFAULT_STACK,
    fast: Annotated[bool, typer.Option("--fast", help="Only examine: leave out Pulumi and Ansible.")] = False,
    as_json: Json = False,
) -> int:
    """Compare every node with the spec; close each whose drift voids its certificate."""
    from stacks import lifecycle
    from stacks.converge import ConvergeError
    from stacks.converge import converge as run

    cluster = standing(stack)
    refresh, check = None, None
    if not fast:
        try:
            with progress("comparing machines and networks (pulumi)") as show:
                refresh = lifecycle.look(stack, show)
            with progress("comparing configuration (ansible, check mode)") as show:
                check = run(cluster.plan, cluster.deployment, show, check=True)
        except (lifecycle.StackError, ConvergeError) as error:
            say(f"not compared: {error}")
    with cluster.alone():
        seen = asyncio.run(observe(cluster, say))
        found = compare_all(cluster, seen, check, refresh)
        why = {name: reasons[0] for name, reasons in found.voided.items()}
        for name, reason in why.items():
            withdraw(cluster, name, reason)
        _, done = admit(cluster, why, seen.examinations)
    if as_json:
        document({"drift": found.model_dump(mode="json"), "pool": [applied(each) for each in done]})
    else:
        _show_drift(found)
        problems(done)
        for each in done:
            result(f"{each.action.node}: {each.action.step.value}: {each.action.reason}")
    return Exit.ERROR if any(each.problem for each in done) else found.exit_code


def _show_drift(found: DriftReport) -> None:
    for layer, state in found.layers.items():
        result(f"{layer.value:<16}{state.value.replace('_', ' ')}")
    for item in found.items:
        mark = ("✗", "bold red") if item.known else ("?", "yellow")
        voids = " · voids the certificate" if item.voids else ""
        result(Text.assemble("  ", mark, f" {item.node:<12}{item.subject}: {item.reason or item.now}{voids}"))
    result("in sync" if found.in_sync else f"{len(found.items)} differences")
