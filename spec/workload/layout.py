"""How a model is spread over GPUs."""

from enum import IntEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from spec.schema.base import Declared, Text

Degree = Annotated[int, Field(ge=1, le=1_000_000)]


class Zero(IntEnum):
    """What data-parallel replicas share instead of each holding all (ZeRO, arXiv:1910.02054)."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3
    """FSDP; HSDP where `shard` is given."""


class ParameterServers(Declared):
    """Servers that hold the parameters: workers push gradients and pull parameters, each step."""

    count: Degree
    gigabytes: Annotated[float, Field(gt=0)]
    """Network bandwidth of one server in one direction, GB/s."""


class Reinforcement(Declared):
    """Reinforcement learning: replicas that generate experience beside the trainer, and simulators that feed them."""

    replicas: Degree
    """Copies of the policy that generate."""
    gpus_per_replica: Degree
    multicast: bool = False
    """The trainer sends each byte once and the network or the replicas spread it."""
    sync_bytes: Annotated[float, Field(gt=0, le=8)] = 2
    """Bytes of each parameter on the wire when the policy is synchronised."""
    sync_every: Degree = 1
    """Steps between two synchronisations."""
    asynchronous: bool = False
    """The trainer goes on while the policy is sent."""
    simulators: Annotated[int, Field(ge=0)] = 0
    samples_per_second: Annotated[float, Field(ge=0)] = 0
    """Of one simulator."""
    sample_bytes: Annotated[float, Field(ge=0)] = 0


class Layout(Declared):
    """Degrees of parallelism. Neighbouring ranks are laid out in the order tensor, context, data, pipeline.

    That is Megatron-LM's default order. Experts are spread over neighbouring context and data ranks.
    """

    name: Text = "layout"
    tensor: Degree = 1
    context: Degree = 1
    data: Degree = 1
    pipeline: Degree = 1
    virtual: Degree = 1
    """Virtual stages of each pipeline rank (interleaved 1F1B)."""
    expert: Degree = 1
    zero: Zero = Zero.OPTIMIZER
    shard: Degree | None = None
    """Ranks that one copy of the parameters is sharded over (HSDP); by default all data ranks."""
    reshard: bool = True
    """FSDP: parameters are freed after the forward pass and gathered again for the backward pass."""
    sequence_parallel: bool = True
    """Activations between tensor-parallel regions are split, too (arXiv:2205.05198)."""
    tensor_overlap: bool = False
    """Tensor-parallel communication is cut into pieces that run beside the matrix products."""
    expert_overlap: bool = False
    """Tokens travel to experts while other tokens are computed (DeepSeek-V3's DualPipe, arXiv:2412.19437)."""
    data_overlap: bool = True
    pipeline_overlap: bool = True
    servers: ParameterServers | None = None
    reinforcement: Reinforcement | None = None

    @property
    def trainers(self) -> int:
        """GPUs that train."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def gpus(self) -> int:
        """All GPUs, those that only generate included."""
        rl = self.reinforcement
        return self.trainers + (rl.replicas * rl.gpus_per_replica if rl else 0)

    @property
    def sharded_over(self) -> int:
        """Ranks that share one copy of what ZeRO shards. Context ranks hold the same parameters, so they share, too."""
        return self.shard or self.data * self.context

    @model_validator(mode="after")
    def _degrees_fit_each_other(self) -> Self:
        copies = self.data * self.context
        if self.shard and copies % self.shard:
            raise ValueError(f"shard is {self.shard}, which does not divide data × context = {copies}: use a divisor")
        if self.shard and self.zero < Zero.PARAMETERS and self.shard != copies:
            raise ValueError(f"shard is {self.shard}, but zero is {self.zero:d}: set zero to 3, or leave shard out")
        if copies % self.expert:
            raise ValueError(f"expert is {self.expert}, which does not divide data × context = {copies}: use a divisor")
        if self.virtual > 1 and self.pipeline == 1:
            raise ValueError(f"virtual is {self.virtual}, but there is one pipeline stage: set virtual to 1")
        return self
