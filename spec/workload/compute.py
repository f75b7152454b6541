"""How long the matrices take."""

from typing import NamedTuple

from spec.workload.job import Job, kept_by_layer
from spec.workload.training import Precision, Recompute

HALF = 280.0
"""The matrix dimension at which a product reaches half of its best speed, in the saturation d/(d + HALF).

Fitted with the efficiencies in `gpus.py`. Tiles are 128 to 256 wide, and narrower slices fill fewer of them:
tensor parallelism and small experts cost speed, even where communication is free.
"""

MOVES = 6.0
"""How often what a layer keeps crosses the GPU's memory in norms, activations, masks and residuals, forward and
backward. Fitted, too."""

GROUPED = 0.7
"""The speed of products of routed experts over that of dense ones of the same width. Fitted, too."""


class Compute(NamedTuple):
    """Seconds of one microbatch on the slowest stage, and the FLOPs that a step counts as useful."""

    forward: float
    backward: float
    """With what is computed again."""
    attention: float
    """The part of both that is attention's core."""
    layers: int
    """Of that stage."""
    model_flops: float
    """Of one step, all GPUs together."""

    @property
    def microbatch(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def saturation(dimension: float) -> float:
    """The part of its best speed that a product reaches whose smallest dimension is this."""
    return dimension / (dimension + HALF)


def compute(job: Job) -> Compute:
    """The time of one microbatch on the slowest stage of the pipeline.

    FLOPs of a linear layer: 2 a parameter and token forward, 4 backward. Attention's core: forward 4·s·a, backward
    twice that and, where the scores are not kept, once more; kernels that skip the masked half do half of it.
    """
    model, layout, training = job.model, job.layout, job.training
    gpu, t, tokens = job.hardware.gpu, layout.tensor, job.tokens
    rate = training.achieved_flops
    reached = gpu.efficiency[training.precision]
    best = rate or gpu.peak(training.precision) * reached
    narrow = min(model.attention_width / t, model.inner / t, model.hidden, tokens)
    dense = rate or best * saturation(narrow)
    core = rate or gpu.peak(Precision.BF16 if training.precision is Precision.FP8 else training.precision) * (
        gpu.efficiency[Precision.BF16 if training.precision is Precision.FP8 else training.precision]
        * saturation(min(tokens, model.attention_width / t))
    )
    routed = 0.0
    if model.experts:
        visitors = tokens * layout.expert * model.experts.top_k / model.experts.count
        speed = rate or best * GROUPED * saturation(min(model.experts.ffn, model.hidden, visitors))
        routed = 2 * model.routed_active_parameters * job.expert_share * tokens / t / speed

    linear = 2 * model.layer_parameters * tokens / t / dense + routed
    scores = model.attention_flops * tokens / t / core * (0.5 if training.flash else 1.0)
    again = 1.0 if training.flash or training.recompute is Recompute.SELECTIVE else 0.0
    # Norms, activations and residuals are bound by memory, a third of them in the forward pass.
    small = MOVES * kept_by_layer(job) / gpu.memory_gbs / 1e9
    head = 2 * model.head_parameters * tokens / t / dense

    # The last stage has the output layer besides its own; the one with most work sets the pace.
    layer = 3 * linear + (3 + again) * scores + small
    full = (job.stage_layers, 0.0) if layout.pipeline > 1 else (job.stage_layers, head)
    last = (job.last_layers, head)
    layers, ends = max(full, last, key=lambda stage: stage[0] * layer + 3 * stage[1])

    forward = layers * (linear + scores + small / 3) + ends
    backward = layers * (2 * linear + (2 + again) * scores + small * 2 / 3) + 2 * ends
    if training.recompute is Recompute.FULL:
        backward += layers * (linear + scores + small / 3)
    return Compute(
        forward=forward,
        backward=backward,
        attention=layers * (3 + again) * scores,
        layers=layers,
        model_flops=model.flops_per_token * job.step_tokens,
    )


def bubble(job: Job) -> float:
    """Idle time of the pipeline over its busy time: (p-1)/(v·m), interleaved 1F1B (arXiv:2104.04473, section 2.2)."""
    return (job.layout.pipeline - 1) / (job.layout.virtual * job.microbatches)


def update_seconds(job: Job) -> float:
    """The optimizer reads and writes its state, the gradients and the weights of its share in memory, once."""
    training, layout = job.training, job.layout
    moved = 2 * training.optimizer_bytes + training.gradient_bytes + training.weight_bytes
    shards = layout.sharded_over if layout.zero else 1
    held = job.shared_parameters / shards + job.routed_parameters / max(1, shards // layout.expert)
    return held * moved / job.hardware.gpu.memory_gbs / 1e9
