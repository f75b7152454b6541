"""Removes checkpoints that need not be kept, once a newer one is proven."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.retention import Retention, Stored, expendable
from runtime.checkpoint.tier import Tier
from runtime.checkpoint.tiers import Level
from runtime.events import Tell, silence


class Keep(Retention):
    """What is kept, and what proves a checkpoint before older ones go for its sake.

    `hashes` reads each new checkpoint back whole, on one rank in the background: beyond some 100 GB say `sizes`, which
    looks at its files alone. Resuming checks every hash in either case.
    """

    proof: Literal["hashes", "sizes"] = Field(default="hashes")


def tidy(keep: Keep, tell: Tell = silence) -> Callable[[Level], None]:
    """What a Checkpointer calls after each commit, on the rank that leads a level."""
    proven: dict[str, Stored] = {}

    def remove(level: Level) -> None:
        tier: Tier = level.tier
        stored = [_stored(tier, step, keep, proven, tell) for step in tier.steps()]
        for step in expendable(keep, stored):
            tier.remove(step)

    return remove


def _stored(tier: Tier, step: int, keep: Keep, proven: dict[str, Stored], tell: Tell) -> Stored:
    try:
        manifest = tier.read_manifest(step)
        name = f"{tier.folder}/{manifest.folder}"
        if name not in proven:
            tier.verify(step, deep=keep.proof == "hashes")
            proven[name] = Stored(step=step, metric=manifest.metric, verified=True)
        return proven[name]
    except CheckpointError as wrong:
        tell("checkpoint.unproven", step=step, reason=str(wrong))
        return Stored(step=step)
