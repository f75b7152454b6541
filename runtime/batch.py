"""The same training at another world size: how many micro-batches a rank adds up, and which learning rate. Pure."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runtime.order import DataError


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


def shared(config: BatchConfig | None, world: int, made: tuple[int, int] | None) -> Share:
    """What a step is. `made`: the samples of a step and the micro-batches on a rank that the data comes in, if any.

    Without a configuration it is as the data comes. Raises DataError where the two do not fit.
    """
    found = share(config, world) if config else Share(1, made[0] if made else 0, 1.0)
    if made is not None and made != (found.batch, found.accumulate):
        raise DataError(
            f"the data comes in steps of {made[0]} samples and {made[1]} micro-batches on a rank, but the run's are of "
            f"{found.batch} and {found.accumulate} · make it with the run's own batch: "
            "Batches(dataset, config.batch, place=place, …), or give the run a DataLoader"
        )
    return found


def not_kept(config: BatchConfig | None, share: Share, world: int) -> dict[str, Any]:
    """With what the training goes on where this number of ranks cannot keep the batch; empty where it can."""
    if config is None or share.batch == config.batch:
        return {}
    return {
        "asked": config.batch,
        "batch": share.batch,
        "world": world,
        "scale": config.scale,
        "factor": share.rate,
        "advice": f"what keeps it is a number of ranks that, times {config.micro}, divides {config.batch}",
    }
