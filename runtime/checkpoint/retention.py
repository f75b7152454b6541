"""Which checkpoints may go. Pure: who removes them is the caller."""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Retention(BaseModel):
    """What stays: what any of the rules keeps. By default the last two, so that one may turn out bad."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_last: int = Field(default=2, ge=1)
    """The newest ones."""
    keep_best: int = Field(default=0, ge=0)
    """Those with the best metric; of equal ones the newer."""
    best: Literal["lowest", "highest"] = "lowest"
    """Which metric is the best: a loss's is the lowest."""
    keep_every_steps: int | None = Field(default=None, ge=1)
    """Those whose step is a multiple of this, for ever."""


class Stored(BaseModel):
    """A committed checkpoint. `verified`: it was read back and found whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    metric: float | None = None
    verified: bool = False


def expendable(retention: Retention, stored: Sequence[Stored]) -> tuple[int, ...]:
    """The steps that may be removed, oldest first. Only verified ones count as kept.

    What is not older than the newest verified checkpoint stays, whatever the rules say: until a newer one is proven,
    nothing is removed for its sake.
    """
    verified = sorted((each for each in stored if each.verified), key=lambda each: each.step)
    if not verified:
        return ()
    kept = {each.step for each in verified[-retention.keep_last :]}
    sign = 1 if retention.best == "lowest" else -1
    scored = [
        (sign * each.metric, -each.step) for each in verified if each.metric is not None and math.isfinite(each.metric)
    ]
    kept |= {-step for _, step in sorted(scored)[: retention.keep_best]}
    if retention.keep_every_steps:
        kept |= {each.step for each in stored if each.step % retention.keep_every_steps == 0}
    newest = verified[-1].step
    return tuple(sorted({each.step for each in stored if each.step < newest} - kept))
