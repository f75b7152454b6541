"""Is this network enough? One or several workloads on a cluster: planned, searched for or compared, and the verdict."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Literal, NamedTuple

from spec.workload.bands import inverse
from spec.workload.compare import Comparison, in_order, refused, rows
from spec.workload.declare import Workload
from spec.workload.figure import Figure, Impossible, Result, WorkloadError
from spec.workload.hardware import Hardware
from spec.workload.layout import Layout
from spec.workload.plan import plan
from spec.workload.result import Plan
from spec.workload.search import Candidate, search
from spec.workload.training import Recompute
from spec.workload.words import three

KEPT = 8
"""Layouts of a search that are told."""

NETWORKS = {
    "rail": "networks.fabric.link_gbps or rails",
    "spine": "networks.fabric.uplinks",
    "storage": "networks.storage.link_gbps, or the storage nodes",
    "management": "networks.management.link_gbps",
}
"""Planes that can be built otherwise, and the fields of the spec that do it. NVLink comes with the GPUs: a layout that
asks too much of it is slow, as its step time and its bottlenecks say, and no network mends that."""


class Network(Result):
    """How the network's speed is known."""

    measured: bool
    source: str
    passed_over: tuple[str, ...] = ()
    """Measurements that were there and could not be used, each with the reason."""


class Option(Result):
    """One layout that a search found."""

    layout: Layout
    micro_batch: int
    recompute: Recompute
    step: Figure
    mfu: Figure
    communication_share: Figure
    memory: Figure


class Searched(Result):
    """A search over layouts."""

    gpus: int
    tried: int
    fitting: int
    best: tuple[Option, ...]
    """The fastest first."""


class Answer(Result):
    """What `muster plan-network --json` prints."""

    version: Literal["muster/plan-network/v1"] = "muster/plan-network/v1"
    cluster: str
    cluster_gpus: int
    network: Network
    enough: bool
    """Memory and every network suffice for the first plan."""
    short: tuple[str, ...]
    """Why not: memory, and each network that does not suffice."""
    plans: tuple[Plan, ...]
    """The best first; none where no layout can run."""
    search: Searched | None = None
    comparison: Comparison | None = None


class Asked(NamedTuple):
    """A workload and what it would run on."""

    workload: Workload
    hardware: Hardware


def answer(asked: Sequence[Asked], network: Network, find: int | None = None) -> Answer:
    """Plans the one layout that is asked for, or compares several; searches where `find` names a number of GPUs.

    A workload without layouts is searched for, too. Raises WorkloadError where the one layout cannot run, where a
    search finds none, or where a search is asked for with several workloads. Of several layouts those that cannot run
    are rows of the comparison.
    """
    bare = [each.workload for each in asked if not each.workload.layouts]
    if find is not None or bare:
        if len(asked) > 1:
            raise WorkloadError([_one_search(bare)])
        return _searched(asked[0], network, find)
    pairs = [(each, layout) for each in asked for layout in each.workload.layouts]
    if len(pairs) == 1:
        return _answer(asked[0].hardware, network, (_plan(*pairs[0]),))
    plans, impossible = [], []
    for each, layout in pairs:
        try:
            plans.append(_plan(each, layout))
        except WorkloadError as error:
            impossible.append(refused(each.workload.model, layout, error))
    table = Comparison(rows=(*rows(plans), *impossible))
    return _answer(asked[0].hardware, network, tuple(in_order(plans)), comparison=table)


def _one_search(bare: Sequence[Workload]) -> Impossible:
    return Impossible(
        field="layouts",
        problem=f"{bare[0].model.name} has no layout to compare" if bare else "a search takes one workload",
        advice="declare its layouts, or give that workload alone to search for the best",
    )


def _plan(asked: Asked, layout: Layout) -> Plan:
    told = asked.workload
    return plan(told.model, layout, told.training, asked.hardware, told.run)


def _searched(asked: Asked, network: Network, find: int | None) -> Answer:
    told, hardware = asked
    count = find or told.gpus or hardware.gpus
    base = told.layouts[0] if told.layouts else None
    found = search(told.model, told.training, hardware, count, KEPT, base)
    best = found.best[0]
    planned = plan(told.model, best.layout, best.training, hardware, told.run)
    options = tuple(_option(each, planned) for each in found.best)
    told_of = Searched(gpus=count, tried=found.tried, fitting=found.fitting, best=options)
    return _answer(hardware, network, (planned,), search=told_of)


def _option(each: Candidate, planned: Plan) -> Option:
    """The figures of a candidate, with the units, sources and errors of the plan that was made of the best."""
    step, memory = planned.step, planned.memory
    error = step.seconds.error

    def like(figure: Figure, value: float, error: float) -> Figure:
        return figure.model_copy(update={"value": value, "error": error})

    return Option(
        layout=each.layout,
        micro_batch=each.training.micro_batch,
        recompute=each.training.recompute,
        step=like(step.seconds, each.step_s, error),
        mfu=like(step.mfu, each.mfu, inverse(error)),
        communication_share=like(step.communication_share, each.communication_share, error),
        memory=like(memory.all, each.memory_gib, memory.all.error),
    )


def _answer(
    hardware: Hardware,
    network: Network,
    plans: tuple[Plan, ...],
    search: Searched | None = None,
    comparison: Comparison | None = None,
) -> Answer:
    short = tuple(_short(plans[0])) if plans else ("no layout can run",)
    return Answer(
        cluster=hardware.name,
        cluster_gpus=hardware.gpus,
        network=network,
        enough=not short,
        short=short,
        plans=plans,
        search=search,
        comparison=comparison,
    )


def _short(planned: Plan) -> Iterator[str]:
    memory = planned.memory
    if not memory.fits:
        yield f"memory: {memory.all.value:.0f} GiB a GPU needed, {memory.available.value:.0f} GiB there"
    for each in planned.bandwidth:
        if each.plane in NETWORKS and not each.enough:
            needed, there = three(each.needed.value), three(each.available.value)
            change = f"{NETWORKS[each.plane]} {ceil(each.utilisation * 100) / 100:,.2f} times as high would do"
            yield f"{each.plane}, {each.purpose}: {needed} GB/s needed, {there} GB/s there · {change}"
