"""What a plan says."""

from pydantic import Field

from spec.workload.figure import Figure, Result
from spec.workload.layout import Layout
from spec.workload.model import Model
from spec.workload.training import Run, Training


class Traffic(Result):
    """One kind of communication of one GPU in one step."""

    kind: str
    collective: str
    ranks: int
    tier: str
    """The highest that it crosses: node, leaf or spine."""
    sent: Figure
    """Bytes, all together."""
    in_node: Figure
    leaf: Figure
    spine: Figure
    messages: Figure
    message: Figure
    """Bytes of one, as nccl-tests counts them."""
    hides_beside: str
    seconds: Figure
    exposed: Figure
    """The part of the seconds that the step is longer for."""


class MemoryUse(Result):
    """One GPU's memory, on the stage that holds most."""

    weights: Figure
    gradients: Figure
    optimizer: Figure
    activations: Figure
    logits: Figure
    overhead: Figure
    all: Figure
    available: Figure
    fits: bool


class StepTime(Result):
    """One step."""

    seconds: Figure
    computing: Figure
    bubble: Figure
    update: Figure
    waiting: Figure
    """For the network."""
    bubble_ratio: Figure
    """Idle time of the pipeline over its busy time."""
    communication_share: Figure
    """Waiting over the step."""
    mfu: Figure
    tokens_per_second: Figure
    flops_per_gpu: Figure
    """Useful FLOP/s of one GPU."""


class Checkpoints(Result):
    """Checkpoints and failures."""

    size: Figure
    interval: Figure
    mtbf: Figure
    """Between interruptions."""
    write: Figure
    restart_read: Figure
    goodput: Figure
    lost_to_checkpoints: Figure
    lost_to_repeated_work: Figure
    lost_to_restarts: Figure
    failures: str
    """Where the failure rate comes from."""


class Bandwidth(Result):
    """What one plane must carry, and can."""

    plane: str
    purpose: str
    needed: Figure
    available: Figure
    utilisation: float
    enough: bool


class Bottleneck(Result):
    """Something that costs time, or does not suffice."""

    what: str
    cost: Figure
    """Its part of the step; 0 where it does not slow the step."""
    evidence: str
    change: str
    """What to do about it, with numbers."""


class Cost(Result):
    """The whole run."""

    gpu_hours: Figure
    days: Figure
    price: Figure | None
    per_billion_tokens: Figure | None


class Plan(Result):
    """A workload on a cluster. `model_dump(mode="json")` is what `--json` prints."""

    model: Model
    layout: Layout
    training: Training
    run: Run
    cluster: str
    gpus: int
    parameters: Figure
    active_parameters: Figure
    microbatches: int
    step: StepTime
    memory: MemoryUse
    traffic: tuple[Traffic, ...]
    checkpoints: Checkpoints
    bandwidth: tuple[Bandwidth, ...]
    bottlenecks: tuple[Bottleneck, ...] = Field(description="What costs most first.")
    cost: Cost | None
    measured: bool
    """Whether communication was timed by the cluster's own measurement."""
