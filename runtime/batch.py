"""The same training at another world size: how many micro-batches a rank adds up, and which learning rate. Pure."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class BatchConfig(BaseModel):
    """`batch`: samples a step over all ranks, which the learning rate was chosen for. `micro`: samples at a time on a
    rank. `scale`: how the learning rate follows where the batch cannot be kept exactly.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(ge=1)
    micro: int = Field(ge=1)
    scale: Literal["linear", "sqrt", "none"] = "linear"


@dataclass(frozen=True)
class Share:
    """A step: `accumulate` micro-batches on each rank, `batch` samples over all, the learning rate's factor `rate`."""

    accumulate: int
    batch: int
    rate: float


def share(config: BatchConfig, world: int) -> Share:
    """Keeps the batch where `micro` times `world` divides it, which leaves the learning rate as it is.

    Where it does not, the nearest batch that it does divide, of two equally near the larger, and the rate by its size.
    """
    each = config.micro * world
    accumulate = max(1, (2 * config.batch + each) // (2 * each))
    ratio = accumulate * each / config.batch
    rate = {"linear": ratio, "sqrt": ratio**0.5, "none": 1.0}[config.scale]
    return Share(accumulate, accumulate * each, rate)
