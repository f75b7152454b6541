"""`muster plan`: what follows from a spec, and whether it holds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.console import Problem, document, err, out, readable, result, table
from policies import design
from policies.exits import Exit
from policies.reading import PolicyError
from spec.draw import draw
from spec.load import SpecErrors, locate
from spec.plan import ClusterPlan, inventory
from spec.proofs import Proof
from spec.proofs.check import check


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plan")(plan)


def read(path: Path) -> tuple[ClusterPlan, tuple[Proof, ...]]:
    """The plan of a spec file and its proofs. Raises Problem, exit 2, with every error at once."""
    try:
        found = check(path)
    except SpecErrors as errors:
        for error in errors.errors:
            err.print(readable(str(error)))
        count = len(errors.errors)
        raise Problem(f"{count} error{'s' if count != 1 else ''}, nothing was changed", exit=Exit.USAGE) from None
    try:
        return found.plan, (*found.proofs, *design.of_policies(found.plan))
    except PolicyError as error:
        raise Problem(str(error), where=str(path), exit=Exit.USAGE) from None


def plan(
    spec: Annotated[Path, typer.Argument(help="The cluster spec, as in clusters/lab.yaml.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan and the proofs as JSON.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw the topology into this file.")] = None,
    show_inventory: Annotated[bool, typer.Option("--inventory", help="Print the Ansible inventory as JSON.")] = False,
) -> int:
    """Derive everything from a spec, and prove that the design holds, before anything is built."""
    made, proofs = read(spec)
    if svg:
        svg.parent.mkdir(parents=True, exist_ok=True)
        svg.write_text(draw(made), encoding="utf-8")
    if show_inventory:
        document(inventory(made))
    elif as_json:
        document({"plan": made.model_dump(mode="json"), "proofs": [each.model_dump(mode="json") for each in proofs]})
    else:
        _print(spec, made, proofs)
        if svg:
            result(f"topology drawn in {svg}")
    return Exit.PASS if all(each.accepted for each in proofs) else Exit.USAGE


def _print(path: Path, made: ClusterPlan, proofs: tuple[Proof, ...]) -> None:
    spec = made.spec
    result(Text(f"{made.name}", style="bold"))
    summary = table("group", "nodes", "roles", "machine", "GPUs", "rails", "first address")
    for group in spec.nodes:
        first = made.node(f"{group.name}-0")
        gpus = f"{group.gpus.count} × {group.gpus.model}" if group.gpus else "–"
        roles = ", ".join(role.value for role in group.roles)
        summary.add_row(
            group.name, str(group.count), roles, group.machine.value, gpus, str(group.nics.fabric), str(first.address())
        )
    out.print(summary)
    result("")
    planes = table("plane", "network", "MTU", "VLAN", "Gb/s")
    for subnet in made.subnets:
        planes.add_row(
            subnet.plane, str(subnet.network), str(subnet.mtu), str(subnet.vlan or "–"), f"{subnet.link_gbps:g}"
        )
    out.print(planes)
    result("")
    found = table("", "proof", "numbers")
    for proof in proofs:
        mark = Text("✓", "green") if proof.holds else Text("!", "yellow") if proof.accepted else Text("✗", "bold red")
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in proof.numbers.items())
        found.add_row(mark, proof.id, Text(numbers))
    out.print(found)
    for proof in proofs:
        if not proof.holds:
            field = proof.fields[0]
            where = f"{path}:{locate(path, field)}: {field}"
            result(Text(f"{where}: {proof.message}", style="yellow" if proof.accepted else "bold red"))
            result(f"    {proof.exception or proof.advice}")
    broken = [proof for proof in proofs if not proof.accepted]
    result("")
    result(f"{len(proofs)} proofs, {len(proofs) - len(broken)} accepted · spec {made.digest[:12]}")


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
