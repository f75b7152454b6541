"""What holds a workload back, in order, and what to change."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spec.workload.bands import MEMORY
from spec.workload.job import Job
from spec.workload.layout import Zero
from spec.workload.memory import Memory
from spec.workload.needs import Need
from spec.workload.placement import Tier
from spec.workload.timing import Exposed, Step
from spec.workload.traffic import Hides, Kind
from spec.workload.training import Recompute
from spec.workload.words import seconds, three

WORTH_NAMING = 0.02
"""Less of the step than this is not called a bottleneck."""


class Finding(NamedTuple):
    """One bottleneck; `cost` is its part of the step."""

    what: str
    cost: float
    evidence: str
    change: str


def bottlenecks(job: Job, taken: Step, held: Memory, needed: Sequence[Need]) -> list[Finding]:
    """What makes the job impossible first, then what costs most of the step, then planes that do not suffice."""
    found = [*_memory(job, held)]
    costs = [*_waiting(taken), *_pipeline(job, taken), *_recompute(job, taken)]
    costs = [each for each in costs if each.cost >= WORTH_NAMING]
    found += sorted(costs, key=lambda each: -each.cost)
    found += sorted(_planes(needed), key=lambda each: each.what)
    return found


def _memory(job: Job, held: Memory) -> Iterator[Finding]:
    room = job.hardware.gpu.memory_gib
    if held.all <= room:
        return
    largest = max(("weights", "gradients", "optimizer", "activations", "logits"), key=lambda name: getattr(held, name))
    layout, training = job.layout, job.training
    if largest == "activations":
        change = "lower micro_batch" if training.micro_batch > 1 else "raise tensor or context"
        if training.recompute is not Recompute.FULL:
            change += ", or set recompute to full (a third more computing)"
    elif largest == "optimizer" and layout.zero < Zero.OPTIMIZER:
        change = "set zero to 1"
    elif largest == "gradients" and layout.zero < Zero.GRADIENTS and layout.pipeline == 1:
        change = "set zero to 2"
    elif layout.zero < Zero.PARAMETERS and layout.pipeline == 1:
        change = "set zero to 3, or raise tensor"
    else:
        change = "raise tensor or pipeline, or shard over more ranks"
    yield Finding(
        "memory",
        0.0,
        f"{held.all:.0f} GiB ± {MEMORY * 100:.0f} % needed, {room:.0f} GiB there; "
        f"{largest} take {getattr(held, largest):.0f} GiB",
        change,
    )


_CHANGES = {
    Kind.TENSOR: "lower tensor and raise pipeline or zero in its place, or overlap it with the matrix products",
    Kind.CONTEXT: "lower context, or keep its ranks within a node",
    Kind.EXPERT: "lower expert to one node, limit the nodes a token visits, dispatch in 8 bits, or overlap it",
    Kind.PIPELINE: "overlap it, split activations by sequence parallelism, or lower virtual",
    Kind.DATA: "raise the tokens of a GPU and step, shard within a node (HSDP), or reduce gradients in 16 bits",
    Kind.SERVERS: "add parameter servers or bandwidth to them, or use all-reduce",
    Kind.POLICY: "multicast the policy, synchronise asynchronously or less often",
}


def _waiting(taken: Step) -> Iterator[Finding]:
    for kind in Kind:
        flows = [each for each in taken.exposed if each.flow.kind is kind]
        waits = sum(each.seconds for each in flows)
        if not waits:
            continue
        worst = max(flows, key=lambda each: each.seconds)
        yield Finding(
            f"{kind.value} communication",
            waits / taken.seconds,
            _evidence(flows, worst, waits),
            _change(kind, worst, waits),
        )


def _evidence(flows: Sequence[Exposed], worst: Exposed, waits: float) -> str:
    sent = sum(each.flow.sent.all for each in flows) / 1e9
    whole = sum(each.flow.seconds for each in flows)
    over = worst.flow.group.tier.value
    return f"{three(sent)} GB a GPU and step over the {over} take {seconds(whole)}, {seconds(waits)} exposed"


def _change(kind: Kind, worst: Exposed, waits: float) -> str:
    change = _CHANGES[kind]
    flow = worst.flow
    if flow.group.tier is not Tier.NODE and flow.hides is not Hides.NOTHING and 0 < worst.window < flow.seconds:
        change += f"; {flow.seconds / worst.window:.2g} times the fabric's bandwidth would hide it"
    elif flow.messages and flow.message_bytes < 4 * 2**20 and waits:
        change += (
            f"; its messages are small ({flow.message_bytes / 2**20:.2g} MiB), so latency counts: make them larger"
        )
    return change


def _pipeline(job: Job, taken: Step) -> Iterator[Finding]:
    if not taken.bubble:
        return
    layout = job.layout
    yield Finding(
        "pipeline bubble",
        taken.bubble / taken.seconds,
        f"{layout.pipeline} stages, {layout.virtual} virtual, {job.microbatches} microbatches",
        "more microbatches (a larger global_batch or fewer data ranks), more virtual stages, or fewer stages",
    )


def _recompute(job: Job, taken: Step) -> Iterator[Finding]:
    if job.training.recompute is Recompute.FULL:
        yield Finding(
            "recomputation",
            job.microbatches * taken.compute.forward / taken.seconds,
            "every layer's forward pass is computed twice",
            "set recompute to selective where memory allows; raise tensor or pipeline if it does not",
        )


def _planes(needed: Sequence[Need]) -> Iterator[Finding]:
    for each in needed:
        if each.plane in ("node", "rail", "spine") or each.utilisation <= 1:
            continue  # the network's shortage is in the step already
        yield Finding(
            f"{each.plane}: {each.purpose}",
            0.0,
            f"{three(each.needed)} GB/s needed, {three(each.available)} GB/s there",
            f"{three(each.utilisation)} times the bandwidth, or {three(each.utilisation)} times the time allowed",
        )
