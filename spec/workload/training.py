"""How a model is trained, and how the run is kept going."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from spec.schema.base import Declared, Text


class Precision(StrEnum):
    """What matrices are multiplied in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    """Linear layers only; attention stays in bf16."""


class Recompute(StrEnum):
    """What the backward pass computes again instead of having kept it (arXiv:2205.05198)."""

    NONE = "none"
    SELECTIVE = "selective"
    """The core of attention. FlashAttention does it by itself."""
    FULL = "full"
    """Every layer."""


class Training(Declared):
    """One step. Batches count sequences."""

    global_batch: Annotated[int, Field(ge=1)]
    micro_batch: Annotated[int, Field(ge=1)] = 1
    precision: Precision = Precision.BF16
    recompute: Recompute = Recompute.SELECTIVE
    flash: bool = True
    """Attention kernels skip the masked half and keep no scores (arXiv:2307.08691)."""
    weight_bytes: Annotated[float, Field(gt=0, le=8)] = 2
    """Bytes of a parameter as it is held and gathered."""
    activation_bytes: Annotated[float, Field(gt=0, le=8)] = 2
    gradient_bytes: Annotated[float, Field(gt=0, le=8)] = 4
    """Bytes of a gradient as it is held."""
    reduce_bytes: Annotated[float, Field(gt=0, le=8)] = 2
    """Bytes of a gradient on the wire."""
    optimizer_bytes: Annotated[float, Field(ge=0, le=64)] = 12
    """Of one parameter: fp32 copy and two moments (Adam)."""
    dispatch_bytes: Annotated[float, Field(gt=0, le=8)] = 2
    """Of an activation on its way to experts; 1 in fp8."""
    achieved_flops: Annotated[float, Field(gt=0)] | None = None
    """FLOP/s that one GPU was measured to do in this model's kernels, without communication."""
    achieved_source: Text | None = None
    """Where that was measured."""

    @model_validator(mode="after")
    def _a_figure_has_a_source(self) -> Self:
        if self.achieved_flops and not self.achieved_source:
            raise ValueError("achieved_flops has no source: say in achieved_source where it was measured")
        if self.micro_batch > self.global_batch:
            raise ValueError(
                f"micro_batch is {self.micro_batch}, above global_batch {self.global_batch}: lower micro_batch"
            )
        return self


class FailureRate(Declared):
    """How often a job is interrupted, for each GPU and hour in it."""

    per_gpu_hour: Annotated[float, Field(ge=0, le=1)]
    source: Text


LLAMA3 = FailureRate(
    per_gpu_hour=419 / (16_384 * 54 * 24),
    source="419 unplanned interruptions of 16,384 H100 in 54 days (Llama 3, arXiv:2407.21783, table 5)",
)
RSC1 = FailureRate(
    per_gpu_hour=6.50 / 1000 / 24 / 8,
    source="6.50 failures in 1,000 node-days of 8 A100 (Meta RSC-1, HPCA 2025)",
)


class Run(Declared):
    """A whole run: its length, its failures, what it stores, reads and pays."""

    tokens: Annotated[float, Field(gt=0)] | None = None
    """Tokens to train on."""
    failures: FailureRate = LLAMA3
    restart_s: Annotated[float, Field(ge=0)] = 600
    """From an interruption to the first step after it, without the lost work."""
    stall_s: Annotated[float, Field(gt=0)] = 20
    """How long a checkpoint may hold the job up."""
    asynchronous: bool = True
    """The stall is the copy to host memory; storage has until the next checkpoint."""
    interval_s: Annotated[float, Field(gt=0)] | None = None
    """Between checkpoints; by default Young's and Daly's."""
    restart_read_s: Annotated[float, Field(gt=0)] = 120
    """How long reading a checkpoint may take."""
    readers: Annotated[int, Field(ge=1)] = 1
    """How often every byte is read at a restart: 1 where each is read once and spread over the fabric."""
    grace_s: Annotated[float, Field(gt=0)] | None = None
    """Notice before a preemption."""
    bytes_per_token: Annotated[float, Field(ge=0)] = 4
    """As stored: 2 to 4 for text."""
    sample_bytes: Annotated[float, Field(ge=0)] = 0
    """Of one sequence, for images, video and sound, instead."""
    image_gigabytes: Annotated[float, Field(ge=0)] = 0
    """Container image that each node pulls over the management plane at a start."""
    start_s: Annotated[float, Field(gt=0)] = 300
    """How long that may take."""
    price: Annotated[float, Field(ge=0)] | None = None
    """Of one GPU for one hour, in your currency."""
