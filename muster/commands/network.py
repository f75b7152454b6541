"""`muster plan-network`: what network a training job needs, and whether this cluster's is enough."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from muster.commands.nodes import Json
from muster.console import Problem, document, err, readable, result, say
from muster.network import show
from policies import evidence
from policies.exits import Exit
from policies.measured import Measured, measured
from policies.report.network import network_page
from spec.load import SpecError, SpecErrors, locate
from spec.plan import ClusterPlan
from spec.proofs.check import check
from spec.workload import Hardware, Impossible, WorkloadError, hardware
from spec.workload.answer import Answer, Asked, Network, answer
from spec.workload.declare import Workload
from spec.workload.read import Declared, load

REPORTS = Path("reports")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plan-network")(plan_network)


def plan_network(
    workloads: Annotated[
        list[Path],
        typer.Argument(help="What is to be trained, as in examples/workloads/llama3-70b.yaml; several are compared."),
    ],
    cluster: Annotated[Path, typer.Option("--cluster", help="The cluster's spec, as in clusters/h100-roce-1024.yaml.")],
    search: Annotated[
        str, typer.Option("--search", metavar="GPUS", help="Find the best layouts on so many GPUs; all takes them all.")
    ] = "",
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare every layout of the workloads; several files always are.")
    ] = False,
    layout: Annotated[str, typer.Option("--layout", help="The name of the one layout to plan.")] = "",
    group: Annotated[str, typer.Option("--group", help="The group of GPU nodes, where the spec has several.")] = "",
    nominal: Annotated[
        bool, typer.Option("--nominal", help="Take the spec's link speeds, also where reports/ has measured ones.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with pictures into this file.")] = None,
    as_json: Json = False,
) -> int:
    """Say what network a training job needs, whether this cluster's is enough, and what to change.

    The step time, its causes and the bandwidth of every plane follow from the model, its layout and the spec, or from
    NCCL's own measurement where reports/ has one of this cluster. Each figure says how far it may be off.

    Exit 1: it does not fit in memory, or a network does not suffice.
    """
    if search and (compare or layout or len(workloads) > 1):
        raise Problem(
            "--search takes one workload and no --compare or --layout",
            advice="search first, then write the layouts that you like into the workload and compare them",
            exit=Exit.USAGE,
        )
    plan, declared = _read(cluster, workloads)
    found = Measured() if nominal else measured(REPORTS, plan)
    asked = [
        Asked(_chosen(each, layout, compare or len(declared) > 1), _hardware(plan, cluster, each, group, found))
        for each in declared
    ]
    network = _network(asked[0].hardware, found, nominal)
    try:
        told = answer(asked, network, _gpus(search, asked[0].hardware) if search else None)
    except WorkloadError as error:
        first = declared[0]
        names = [each.name for each in first.workload.layouts]
        raise _refused(first.errors(error.reasons, names.index(layout) if layout else 0)) from None
    if html:
        html.parent.mkdir(parents=True, exist_ok=True)
        evidence.write(html, network_page(told))
    if as_json:
        document(told.model_dump(mode="json"))
    else:
        show(told)
        if html:
            result(f"page: {html}")
    return _exit(told)


def _exit(told: Answer) -> Exit:
    if not told.plans:
        return Exit.USAGE
    return Exit.PASS if told.enough else Exit.FAIL


def _read(cluster: Path, workloads: Sequence[Path]) -> tuple[ClusterPlan, list[Declared]]:
    """The plan and all workloads. Raises Problem, exit 2, with every error of every file at once."""
    errors: list[SpecError] = []
    declared: list[Declared] = []
    plan = None
    try:
        checked = check(cluster)
        plan = checked.plan
        if checked.errors:
            say(f"{cluster}: {len(checked.errors)} proofs of the design fail; muster plan {cluster} tells them")
    except SpecErrors as found:
        errors += found.errors
    for path in workloads:
        try:
            declared.append(load(path))
        except SpecErrors as found:
            errors += found.errors
    if plan is None or errors:
        raise _refused(errors)
    return plan, declared


def _refused(errors: Sequence[SpecError]) -> Problem:
    for error in errors:
        err.print(readable(str(error)))
    count = len(errors)
    return Problem(f"{count} error{'s' if count != 1 else ''}, nothing was planned", exit=Exit.USAGE)


def _chosen(declared: Declared, name: str, compared: bool) -> Workload:
    """The workload with the layouts that are asked for. Raises Problem where none has the name."""
    layouts = declared.workload.layouts
    if name:
        kept = tuple(each for each in layouts if each.name == name)
        if not kept:
            known = ", ".join(each.name for each in layouts) or "none"
            advice = f"its layouts are: {known}"
            raise Problem(f"no layout {name!r}", where=str(declared.file), advice=advice, exit=Exit.USAGE)
        return declared.workload.model_copy(update={"layouts": kept[:1]})
    return declared.workload if compared else declared.workload.model_copy(update={"layouts": layouts[:1]})


def _hardware(plan: ClusterPlan, cluster: Path, declared: Declared, group: str, found: Measured) -> Hardware:
    """The cluster's hardware with what was measured: the workload's own figures first. Raises Problem."""
    told = declared.workload
    try:
        there = hardware(plan, group or None, told.gpu)
    except WorkloadError as error:
        raise _refused([_of_cluster(cluster, each) for each in error.reasons]) from None
    curves = {"in_node": told.in_node or found.in_node, "between": told.between or found.between}
    return there.model_copy(update=curves)


def _of_cluster(cluster: Path, reason: Impossible) -> SpecError:
    field = "nodes" if reason.field.startswith("hardware") else reason.field
    advice = reason.advice.replace("name one group", "name one group with --group")
    return SpecError(cluster, locate(cluster, field), field, reason.problem, advice)


def _network(there: Hardware, found: Measured, nominal: bool) -> Network:
    sources = dict.fromkeys(each.source for each in (there.in_node, there.between) if each)
    links = f"{there.rails} rails × {there.rail * 8:g} Gb/s a node, {there.reach * 100:.0f} % of it for collectives"
    if sources:
        told = "; ".join(sources)
        return Network(measured=True, source=told, passed_over=found.passed_over)
    why = "as asked for" if nominal else "nothing was measured" if not found.passed_over else "no measurement is usable"
    return Network(measured=False, source=f"{links} ({why})", passed_over=found.passed_over)


def _gpus(text: str, there: Hardware) -> int:
    if text == "all":
        return there.gpus
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0:
        return int(text)
    raise Problem(f"--search {text!r} is no number of GPUs", advice="give a number, or all", exit=Exit.USAGE)
