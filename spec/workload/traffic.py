"""Who sends how much to whom: the bytes of one step for each kind of parallelism.

Bytes are those that one GPU sends. The formulas are Megatron-LM's (arXiv:2104.04473 and 2205.05198), ZeRO's
(arXiv:1910.02054) and the usual ones for experts; each flow names its own.
"""

from collections.abc import Iterator
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from spec.workload.job import Job
from spec.workload.layout import Zero
from spec.workload.placement import Bytes, Group, exchange, group, ring
from spec.workload.training import Recompute

BUCKET_PARAMETERS = 40_000_000
"""Parameters whose gradients travel together (Megatron-LM's default of --ddp-bucket-size)."""


class Kind(StrEnum):
    """What the bytes are for."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    DATA = "data"
    SERVERS = "parameter servers"
    POLICY = "policy sync"


class Hides(StrEnum):
    """Beside which computation a flow can run."""

    NOTHING = "nothing"
    LINEAR = "linear layers of the same microbatch"
    ATTENTION = "attention of the same microbatch"
    MICROBATCH = "the same microbatch"
    FORWARD = "the first forward pass"
    BACKWARD = "the last backward pass"
    STEP = "the whole step"


class Flow(NamedTuple):
    """One kind of communication in one step."""

    kind: Kind
    collective: str
    group: Group
    sent: Bytes
    messages: float
    message_bytes: float
    """As nccl-tests counts them: what a rank sends or receives in one operation."""
    seconds: float
    """All messages, one after the other, with nothing else running."""
    hides: Hides
    source: str

    @property
    def repeated(self) -> bool:
        """Whether it is part of every microbatch, so that the pipeline's bubble stretches it, too."""
        return self.kind in (Kind.TENSOR, Kind.CONTEXT, Kind.EXPERT)


def flows(job: Job, layers: int) -> list[Flow]:
    """All flows of a step, of a GPU whose stage has `layers` layers."""
    within = (*_tensor(job, layers), *_context(job, layers), *_expert(job, layers))
    return [*within, *_pipeline(job), *_data(job), *_servers(job), *_policy(job)]


def _tensor(job: Job, layers: int) -> Iterator[Flow]:
    t = job.layout.tensor
    if t == 1:
        return
    message = job.tokens * job.model.hidden * job.training.activation_bytes
    times = 6 if job.training.recompute is Recompute.FULL else 4
    count = times * layers * job.microbatches
    one = 2 * (t - 1) / t * message
    where = group(job.hardware, t, 1)
    yield Flow(
        Kind.TENSOR,
        "all-gather and reduce-scatter" if job.layout.sequence_parallel else "all-reduce",
        where,
        where.spread(one * count),
        count * (2 if job.layout.sequence_parallel else 1),
        message,
        count * ring(job.hardware, where, message, one),
        Hides.LINEAR if job.layout.tensor_overlap else Hides.NOTHING,
        f"{times} × 2(t-1)/t·b·s·h·e a layer and microbatch (arXiv:2205.05198)",
    )


def _context(job: Job, layers: int) -> Iterator[Flow]:
    c, t = job.layout.context, job.layout.tensor
    if c == 1:
        return
    whole = job.training.micro_batch * job.model.sequence
    message = 2 * job.model.kv_width * whole * job.training.activation_bytes / t
    count = 2 * layers * job.microbatches
    one = (c - 1) / c * message
    where = group(job.hardware, c, t)
    yield Flow(
        Kind.CONTEXT,
        "all-gather and reduce-scatter",
        where,
        where.spread(one * count),
        count,
        message,
        count * ring(job.hardware, where, message, one),
        Hides.ATTENTION,
        "2(c-1)/c of the keys and values of a layer and microbatch (Llama 3, arXiv:2407.21783, section 3.3.2)",
    )


def _expert(job: Job, layers: int) -> Iterator[Flow]:
    x, experts = job.layout.expert, job.model.experts
    if x == 1 or experts is None:
        return
    where = group(job.hardware, x, job.layout.tensor)
    tokens = job.tokens / job.layout.tensor
    width = job.model.hidden * (job.training.dispatch_bytes + job.training.activation_bytes)
    near = (where.members - 1) / x
    far = 1 - where.members / x
    copies = experts.top_k * far
    if experts.nodes_per_token:  # one copy a node, spread there over NVLink
        copies = min(copies, float(experts.nodes_per_token))
    again = 3 if job.training.recompute is Recompute.FULL else 2
    layer = again * tokens * width
    count = 2 * again * layers * job.expert_share * job.microbatches
    over = copies / where.islands * where.leaves if where.leaves > 1 else 0.0
    total = layer * layers * job.expert_share * job.microbatches
    sent = Bytes(experts.top_k * near * total, (copies - over) * total, over * total)
    one = Bytes(*(each / count for each in sent))
    yield Flow(
        Kind.EXPERT,
        "all-to-all",
        where,
        sent,
        count,
        experts.top_k * tokens * width / 2,
        count * exchange(job.hardware, where, one),
        Hides.MICROBATCH if job.layout.expert_overlap else Hides.NOTHING,
        "k·h·(e_dispatch + e_combine)·tokens·(x-1)/x a layer, forward and backward; node-limited (arXiv:2412.19437)",
    )


def _pipeline(job: Job) -> Iterator[Flow]:
    layout = job.layout
    if layout.pipeline == 1:
        return
    scattered = layout.tensor if layout.sequence_parallel else 1
    message = job.tokens * job.model.hidden * job.training.activation_bytes / scattered
    count = 2 * job.microbatches * layout.virtual
    stride = layout.tensor * layout.context * layout.data
    where = group(job.hardware, layout.pipeline, stride)
    sent = _hop(where, message)
    yield Flow(
        Kind.PIPELINE,
        "send and receive",
        where,
        Bytes(*(each * count for each in sent)),
        count,
        message,
        count * exchange(job.hardware, where, sent),
        Hides.MICROBATCH if layout.pipeline_overlap else Hides.NOTHING,
        "2·b·s·h·e·m·v, over t where activations are split (arXiv:2104.04473, section 4.1)",
    )


def _hop(where: Group, message: float) -> Bytes:
    """One message to the next rank: the slowest hop that the group has."""
    if where.islands == 1:
        return Bytes(message, 0.0, 0.0)
    return Bytes(0.0, message, 0.0) if where.leaves == 1 else Bytes(0.0, 0.0, message)


def _data(job: Job) -> Iterator[Flow]:
    layout = job.layout
    if layout.servers:
        return
    copies = layout.data * layout.context
    yield from _replicas(job, job.shared_parameters, copies, layout.tensor)
    if job.routed_parameters:
        yield from _replicas(job, job.routed_parameters, copies // layout.expert, layout.tensor * layout.expert)


def _replicas(job: Job, parameters: float, copies: int, stride: int) -> Iterator[Flow]:
    """The gradients' and parameters' way between `copies` ranks that hold the same."""
    layout, training = job.layout, job.training
    if copies == 1:
        return
    if layout.zero < Zero.PARAMETERS:
        where = group(job.hardware, copies, stride)
        buckets = max(1, ceil(parameters / BUCKET_PARAMETERS))
        gathered = training.weight_bytes if layout.zero else training.reduce_bytes
        after = Hides.FORWARD if layout.zero else Hides.BACKWARD  # without ZeRO: the second half of an all-reduce
        why = "2(d-1)/d·e·P/(tp), ZeRO-1 and DDP"
        yield _flow(job, where, "reduce-scatter", parameters * training.reduce_bytes, 1, buckets, Hides.BACKWARD, why)
        yield _flow(job, where, "all-gather", parameters * gathered, 1, buckets, after, why)
        return
    shard = min(layout.sharded_over, copies)
    where = group(job.hardware, shard, stride)
    gathers = 2 * job.microbatches if layout.reshard else 1
    # Without resharding the parameters stay, and gradients are reduced once, at the end.
    reduces = job.microbatches if layout.reshard else 1
    first, last = (Hides.STEP, Hides.STEP) if layout.reshard else (Hides.FORWARD, Hides.BACKWARD)
    source = "(2 gathers + 1 reduction)·(d-1)/d·e·P a microbatch where resharded, 2(d-1)/d·e·P a step where not (FSDP)"
    layers = max(1, job.stage_layers)
    if shard > 1:
        yield _flow(job, where, "all-gather", parameters * training.weight_bytes, gathers, layers, first, source)
        yield _flow(job, where, "reduce-scatter", parameters * training.reduce_bytes, reduces, layers, last, source)
    replicas = copies // shard
    if replicas > 1:
        apart = group(job.hardware, replicas, stride * shard)
        size = parameters * training.reduce_bytes / shard
        for name in ("reduce-scatter", "all-gather"):  # the two halves of an all-reduce
            yield _flow(job, apart, name, size, 1, layers, Hides.BACKWARD, "2(r-1)/r·e·P/shard between replicas (HSDP)")


def _flow(job: Job, where: Group, name: str, size: float, times: int, pieces: int, hides: Hides, source: str) -> Flow:
    """`times` collectives of `size` bytes, each in `pieces` messages."""
    one = (where.size - 1) / where.size * size / pieces
    count = times * pieces
    return Flow(
        Kind.DATA,
        name,
        where,
        where.spread(one * count),
        count,
        size / pieces,
        count * ring(job.hardware, where, size / pieces, one),
        hides if job.layout.data_overlap else Hides.NOTHING,
        source,
    )


def _servers(job: Job) -> Iterator[Flow]:
    servers = job.layout.servers
    if servers is None:
        return
    workers = job.layout.data * job.layout.context
    push = job.parameters * job.training.reduce_bytes
    pull = job.parameters * job.training.weight_bytes
    where = group(job.hardware, max(2, workers), job.hardware.island)
    # Each server takes its share of every worker's gradients and sends its share of the parameters to each.
    copies = workers * job.layout.tensor * job.layout.pipeline
    busiest = copies * max(push, pull) / servers.count / servers.gigabytes / 1e9
    own = (push + pull) / job.hardware.fabric / job.hardware.reach / 1e9
    yield Flow(
        Kind.SERVERS,
        "push and pull",
        where,
        Bytes(0.0, push, 0.0) if where.leaves == 1 else Bytes(0.0, 0.0, push),
        2 * servers.count,
        push / servers.count,
        max(busiest, own),
        Hides.BACKWARD,
        "workers·e·P/servers through each server, e·P in and out of each worker (parameter server, OSDI 2014)",
    )


def _policy(job: Job) -> Iterator[Flow]:
    rl = job.layout.reinforcement
    if rl is None:
        return
    hardware, rate = job.hardware, job.hardware.fabric * job.hardware.reach
    policy = job.model.total_parameters * rl.sync_bytes
    egress = policy * (1 if rl.multicast else rl.replicas) / (job.layout.trainers * rate * 1e9)
    ingress = policy / (rl.gpus_per_replica * rate * 1e9)
    each = policy * (1 if rl.multicast else rl.replicas) / job.layout.trainers / rl.sync_every
    where = group(hardware, max(2, rl.replicas), max(hardware.island, rl.gpus_per_replica))
    yield Flow(
        Kind.POLICY,
        "point to point",
        where,
        Bytes(0.0, each, 0.0) if where.leaves == 1 else Bytes(0.0, 0.0, each),
        rl.replicas / rl.sync_every,
        policy / job.layout.trainers,
        max(egress, ingress) / rl.sync_every,
        Hides.STEP if rl.asynchronous else Hides.NOTHING,
        "the longer of P·e·replicas/trainers' egress (once with multicast) and P·e/a replica's ingress",
    )
