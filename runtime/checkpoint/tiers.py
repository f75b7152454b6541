"""Two places for checkpoints: each node's own disk, written and read first, and the filesystem that all nodes share.

A node's own tier holds what its ranks hold, so that a job that starts again on the same nodes reads nothing over the
network. A node that was exchanged has none: then all ranks read what the shared tier has.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue

from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.crypt import Key
from runtime.checkpoint.format import CheckpointError, Manifest, NewerFormatError, TornError
from runtime.checkpoint.lease import HeldError
from runtime.checkpoint.storage import StalledError, StorageError
from runtime.checkpoint.tier import NoCheckpointError, Tier
from runtime.control import Control
from runtime.events import Tell
from runtime.place import Place


class PeerFailedError(CheckpointError):
    """Another rank could not; its own error says why."""


class Version(NamedTuple):
    """Which checkpoint: two tiers may hold a step that two attempts came to differently."""

    step: int
    turn: int
    attempt: str


@dataclass(frozen=True)
class Level:
    """One of the tiers, and this rank's part in it."""

    name: str
    tier: Tier
    ranks: tuple[int, ...]
    """Who writes to it together."""
    leads: bool
    """Whether this rank commits, removes and quarantines there."""
    whole: bool
    """Whether it holds every element, or only what its ranks hold."""


class Tiers:
    """The levels, nearest first."""

    def __init__(self, config: CheckpointConfig, place: Place, key: Key | None, tell: Tell) -> None:
        node = place.rank // place.local_world
        ranks = tuple(range(node * place.local_world, min((node + 1) * place.local_world, place.world)))
        self.shared = Level(
            "shared",
            Tier(config.folder, key, tell, stall_s=config.stall_limit_s),
            tuple(range(place.world)),
            place.leads,
            whole=True,
        )
        self.node: Level | None = None
        if config.node_folder is not None:
            tier = Tier(config.node_folder, key, tell, stall_s=config.stall_limit_s)
            self.node = Level("node", tier, ranks, place.rank == ranks[0], whole=False)

    def __iter__(self) -> Iterator[Level]:
        return iter([each for each in (self.node, self.shared) if each is not None])

    def named(self, name: str) -> Level:
        return next(each for each in self if each.name == name)

    def close(self, limit_s: float) -> None:
        for level in self:
            level.tier.close(limit_s)


def claimed(tiers: Tiers, control: Control, limit_s: float) -> None:
    """Makes the folders this job's own, and clears away what saves have left that did not end. All ranks call it.

    The wait for a holder that may be dead is in turns, so that no rank takes the others for lost. Raises HeldError on
    the leader, PeerFailedError on the others.
    """
    deadline = time.monotonic() + limit_s
    for level in tiers:
        while True:
            refused: CheckpointError | None = None
            try:
                if level.leads:
                    level.tier.claim(min(10.0, max(0.0, deadline - time.monotonic())))
                    level.tier.sweep()
            except HeldError as held:
                refused = held
            except CheckpointError as wrong:
                refused, deadline = wrong, 0.0
            waits, over = control.highest(refused is not None, refused is not None and time.monotonic() >= deadline)
            if over:
                raise refused or PeerFailedError("the leader cannot have the folder of checkpoints · its log says why")
            if not waits:
                break


class Found(NamedTuple):
    """What a rank sees: the versions with the levels that have them, what is torn, and the error if it cannot look."""

    versions: dict[Version, list[str]]
    torn: list[tuple[str, int, str]]
    """Level, step and reason."""
    fault: CheckpointError | None = None


def look(tiers: Tiers) -> Found:
    """Reads the manifests of all levels. A node's own that cannot be read counts as empty, the shared one not."""
    found = Found({}, [])
    fault: CheckpointError | None = None
    for level in tiers:
        try:
            for step in level.tier.steps():
                try:
                    found.versions.setdefault(version(level.tier.read_manifest(step)), []).append(level.name)
                except TornError as torn:
                    found.torn.append((level.name, step, str(torn)))
                except NoCheckpointError:
                    continue
        except (StorageError, NewerFormatError) as wrong:
            if level.whole or isinstance(wrong, NewerFormatError):
                fault = fault or wrong
    return found._replace(fault=fault)


def version(manifest: Manifest) -> Version:
    """Which checkpoint this is, whichever tier it lies in."""
    turn = manifest.values.get("turn")
    return Version(manifest.step, turn if isinstance(turn, int) else 0, manifest.attempt)


def passing(error: Exception) -> bool:
    """Whether the same write may succeed later."""
    return isinstance(error, StorageError) and error.passing and not isinstance(error, StalledError)


def described(config: CheckpointConfig) -> dict[str, Any]:
    """What of the configuration a manifest keeps."""
    settings: dict[str, JsonValue] = dict(config.settings)
    return {"spec_digest": config.spec_digest, "image_digest": config.image_digest, "config": settings}
