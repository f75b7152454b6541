"""What one GPU holds."""

from typing import NamedTuple

from spec.workload.job import Job, kept_by_layer
from spec.workload.layout import Zero
from spec.workload.training import Recompute

OVERHEAD_GIB = 4.0
"""CUDA context, NCCL's buffers, workspaces and fragmentation: an assumption, to be replaced by a measurement."""

GIB = 2.0**30


class Memory(NamedTuple):
    """GiB of one GPU, on the stage that holds most."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    overhead: float

    @property
    def all(self) -> float:
        """Together."""
        return sum(self)


def memory(job: Job) -> Memory:
    """Memory at its peak.

    Weights, gradients and optimizer state by ZeRO stage (arXiv:1910.02054, section 5). Activations of a layer by
    arXiv:2205.05198, table 2: 34·s·b·h with a 4h feed-forward layer, split t ways with sequence parallelism, 10 of the
    34 not split without; 5·a·s²·b more where the scores are kept; 2·s·b·h where all is computed again.
    """
    training, layout = job.training, job.layout
    shards = layout.sharded_over
    routed_shards = max(1, shards // layout.expert)

    def held(each: float, from_stage: Zero) -> float:
        if layout.zero < from_stage:
            return each * job.parameters
        return each * (job.shared_parameters / shards + job.routed_parameters / routed_shards)

    whole = layout.zero is Zero.PARAMETERS and not layout.reshard
    weights = training.weight_bytes * job.parameters if whole else held(training.weight_bytes, Zero.PARAMETERS)
    if layout.zero is Zero.PARAMETERS and layout.reshard:  # the layer at work and the next are gathered
        layer = job.parameters / max(1, job.stage_layers)
        weights = min(weights + 2 * layer * training.weight_bytes, training.weight_bytes * job.parameters)
    gradients = training.gradient_bytes * job.parameters if whole else held(training.gradient_bytes, Zero.GRADIENTS)
    return Memory(
        weights=weights / GIB,
        gradients=gradients / GIB,
        optimizer=held(training.optimizer_bytes, Zero.OPTIMIZER) / GIB,
        activations=_activations(job) / GIB,
        logits=_logits(job) / GIB,
        overhead=OVERHEAD_GIB,
    )


def _activations(job: Job) -> float:
    """Bytes of the activations that wait for their backward pass, on the first stage, which keeps most."""
    model, layout, training = job.model, job.layout, job.training
    kept = job.tokens * model.hidden * training.activation_bytes
    layer = kept_by_layer(job)
    if not training.flash and training.recompute is Recompute.NONE:
        layer += 5 * model.heads * model.sequence * job.tokens / layout.tensor
    flight = float(min(layout.pipeline, job.microbatches))
    if layout.virtual > 1:  # arXiv:2205.05198, section 4.2.3
        flight *= 1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual)
    if training.recompute is Recompute.FULL:
        share = layout.tensor if layout.sequence_parallel else 1
        return flight * job.stage_layers * kept / share + layer
    return flight * job.stage_layers * layer


def _logits(job: Job) -> float:
    """Scores over the vocabulary in fp32, and their gradient. Only the last stage has them, with one microbatch."""
    if job.layout.pipeline > 1 and job.microbatches > 1:
        return 0.0  # the first stage, with its activations in flight, holds more
    return 2 * 4 * job.tokens * job.model.vocabulary / job.layout.tensor
