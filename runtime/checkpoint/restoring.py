"""Agreeing on the newest checkpoint that every rank finds whole, and reading it."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.checkpoint import rng
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.format import CheckpointError, Manifest, Part, TornError
from runtime.checkpoint.install import Kind, Wanted, put_back, wanted
from runtime.checkpoint.layout import box
from runtime.checkpoint.pieces import GapError, whole
from runtime.checkpoint.snapshot import Arena
from runtime.checkpoint.staging import Slot, staged
from runtime.checkpoint.state import StateError, Training
from runtime.checkpoint.storage import StorageError
from runtime.checkpoint.tier import NoCheckpointError
from runtime.checkpoint.tiers import Found, PeerFailedError, Tiers, Version, look
from runtime.control import Control
from runtime.events import Tell
from runtime.place import Place

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

CANNOT, MISFIT, TORN, WHOLE = range(4)
"""What a rank says of a checkpoint; the lowest of all ranks counts."""


class NothingWholeError(CheckpointError):
    """There were checkpoints, and none can be resumed from."""


class NotSharedError(StorageError):
    """Other ranks see checkpoints in the shared folder, and this one sees an empty one."""


@dataclass(frozen=True)
class Resumed:
    """What a training was put back from. `rng`: restored, or derived where the checkpoint has none of this rank."""

    step: int
    attempt: str
    level: str
    world: int
    kind: str
    rng: str
    metric: float | None
    bytes: int
    seconds: float


class Agreement:
    """One checkpoint for all ranks: the newest that all have, then an older one, until one is whole on every rank."""

    def __init__(self, tiers: Tiers, place: Place, control: Control, tell: Tell) -> None:
        self._tiers, self._place, self._control, self._tell = tiers, place, control, tell

    def find(self, check: Callable[[Version, list[str]], T], before: int | None = None) -> T | None:
        """What `check` returned for the agreed checkpoint; none where there is no checkpoint at all.

        `before`: only one of an earlier step, and none where there is none. `check` gets the levels that have it here,
        nearest first, and raises TornError where it is not whole.
        """
        refused: set[Version] = set()
        bad: set[int] = set()
        while True:
            found = look(self._tiers)
            bad |= self._quarantine(found.torn)
            version, missed = self._newest(found, refused, before)
            if version is None and before is not None:
                return None  # what is later stands
            if version is None:
                self._see_the_same(found)
                # Also those of earlier starts: a run that lost all it had must not begin anew unasked.
                aside = sum(level.tier.quarantined() for level in self._tiers)
                (lost,) = self._control.highest(max(len(bad | missed), aside))
                if lost:
                    raise NothingWholeError(
                        f"{self._tiers.shared.tier.folder}: none of {lost} checkpoints is whole "
                        "on every rank · quarantined/ has the reasons · mend one, or start anew in an empty folder"
                    )
                return None
            outcome = WHOLE
            torn: list[tuple[str, int, str]] = []
            error: Exception | None = None
            try:
                return_value = check(version, found.versions[version])
            except TornError as wrong:
                outcome, torn = TORN, getattr(wrong, "torn", [])
            except StateError as wrong:
                outcome, error = MISFIT, wrong
            except (StorageError, CheckpointError) as wrong:
                outcome, error = CANNOT, wrong
            (worst,) = self._control.lowest(outcome)
            if error is not None:
                raise error
            if worst in (CANNOT, MISFIT):
                raise PeerFailedError(f"another rank cannot read step {version.step} · its log says why")
            if worst == WHOLE:
                return return_value
            refused.add(version)
            bad |= self._quarantine(torn) | {version.step}
            self._tell("checkpoint.refused", step=version.step, attempt=version.attempt)

    def set_aside(self, step: int, reason: str) -> None:
        """Quarantines all checkpoints of this step and later ones. All ranks call it."""
        for level in self._tiers:
            if level.leads:
                while later := [each for each in level.tier.steps() if each >= step]:
                    level.tier.quarantine(later[-1], reason)
        self._control.barrier()

    def _newest(self, found: Found, refused: set[Version], before: int | None) -> tuple[Version | None, set[int]]:
        """The newest that all ranks have, and the steps that not all have. Raises where a rank cannot look."""
        fits = [each for each in found.versions if each not in refused and (before is None or each.step < before)]
        own = {"versions": [list(each) for each in fits], "fault": str(found.fault)[:2000] if found.fault else ""}
        told = [json.loads(raw) for raw in self._control.gather(json.dumps(own).encode())]
        for rank, each in enumerate(told):
            if each["fault"]:
                raise found.fault or PeerFailedError(f"rank {rank} cannot see the checkpoints: {each['fault']}")
        seen = [{Version(*version) for version in each["versions"]} for each in told]
        common = set.intersection(*seen)
        return max(common, default=None), {each.step for each in set.union(*seen) - common}

    def _see_the_same(self, found: Found) -> None:
        """Raises where the shared folder is empty for some ranks only: on their nodes it is another folder."""
        shared = self._tiers.shared
        there = any(shared.name in levels for levels in found.versions.values())
        there = there or any(name == shared.name for name, *_ in found.torn) or shared.tier.quarantined() > 0
        seen = [bool(int(raw)) for raw in self._control.gather(b"%d" % there)]
        if all(seen) or not any(seen):
            return
        blind = ", ".join(str(rank) for rank, sees in enumerate(seen) if not sees)
        what = f"{shared.tier.folder}: there are checkpoints, and ranks {blind} see none"
        if not there:
            raise NotSharedError(f"{what} · mount it on their nodes, this one among them")
        raise PeerFailedError(f"{what} · mount it on their nodes")

    def _quarantine(self, torn: list[tuple[str, int, str]]) -> set[int]:
        """Sets aside what any rank found torn: by the leader of its level. Their steps. All ranks call it."""
        own = [[name, self._owner(name), step, reason[:500]] for name, step, reason in torn]
        found: dict[tuple[str, int, int], str] = {}
        for raw in self._control.gather(json.dumps(own).encode()):
            for name, owner, step, reason in json.loads(raw):
                found.setdefault((name, owner, step), reason)
        for (name, owner, step), reason in found.items():
            if owner == self._place.rank:
                try:
                    self._tiers.named(name).tier.quarantine(step, reason)
                except NoCheckpointError:
                    continue
        self._control.barrier()
        return {step for _, _, step in found}

    def _owner(self, name: str) -> int:
        return self._tiers.named(name).ranks[0]


class FoundTornError(TornError):
    """A checkpoint is not whole on this rank, with what is to be set aside: level, step and reason of each."""

    def __init__(self, torn: list[tuple[str, int, str]]) -> None:
        super().__init__("; ".join(reason for *_, reason in torn) or "no level here holds all that this rank needs")
        self.torn = torn


@dataclass(frozen=True)
class Read:
    """A checkpoint in host memory: all that this rank needs of it, every byte checked."""

    manifest: Manifest
    part: Part
    """This rank's own; where the checkpoint has none, another's."""
    level: str
    wants: Wanted
    staged: "Mapping[str, Tensor]"
    shared: Mapping[str, Any]
    mine: Mapping[str, Any]
    derived: "Tensor | None"
    """Another rank's random state, where this rank has none."""


class Reading:
    """Reads a checkpoint for one rank's training."""

    def __init__(self, tiers: Tiers, place: Place, config: CheckpointConfig, arena: Arena, training: Training) -> None:
        self._tiers, self._place, self._config, self._arena = tiers, place, config, arena
        self._training = training

    def read(self, version: Version, names: list[str]) -> Read:
        """From the nearest level that has all of it. Raises FoundTornError, StateError, StorageError."""
        torn: list[tuple[str, int, str]] = []
        for name in names:
            level = self._tiers.named(name)
            try:
                return self._from(version, name)
            except TornError as wrong:
                torn.append((name, version.step, str(wrong)))
            except GapError:
                continue
            except (StateError, StorageError):
                if level.whole:
                    raise
        raise FoundTornError(torn)

    def _from(self, version: Version, name: str) -> Read:
        tier = self._tiers.named(name).tier
        manifest = tier.verify(version.step, deep=False)
        part, own = self._part(manifest)
        kinds = {each.name: Kind(each.dtype, each.shape) for each in manifest.pieces}
        shared, wants = self._wants(manifest, part, kinds)
        slots = [Slot(name, kinds[name].dtype, box(tensor)) for name, tensor in wants.tensors.items()]
        needed = f"rank/{part.values['rank']}/" + ("" if own else "data/")
        slots += [Slot(each, kind.dtype, whole(kind.shape)) for each, kind in kinds.items() if each.startswith(needed)]
        if not own:
            torch_rng = f"rank/{part.values['rank']}/rng/torch"
            slots.append(Slot(torch_rng, kinds[torch_rng].dtype, whole(kinds[torch_rng].shape)))
        alone = self._place.local_world == 1  # else the node's other ranks find in the page cache what one has read
        found = staged(
            slots,
            manifest,
            lambda jobs: tier.read_all(manifest, jobs, direct=alone),
            self._config.read_threads,
            self._arena,
        )
        mine = dict(_object(part.values["mine"]))
        if not own:
            mine.pop("rng", None)
        return Read(manifest, part, name, wants, found, shared, mine, None if own else found[torch_rng])

    def _part(self, manifest: Manifest) -> tuple[Part, bool]:
        """The part with this rank's own values, and whether it is this rank's; else the first one."""
        for part in manifest.parts:
            if part.values.get("rank") == self._place.rank:
                return part, True
        return manifest.parts[0], False

    def _wants(self, manifest: Manifest, own: Part, kinds: Mapping[str, Kind]) -> tuple[Mapping[str, Any], Wanted]:
        """The shared values that fit this rank's model, and the tensors to fill."""
        told = [part for part in (own, *manifest.parts) if "shared" in part.values]
        if not told:
            raise GapError("no part here tells the shared values")
        wrong: StateError | None = None
        for part in told:
            shared = _object(part.values["shared"])
            try:
                return shared, wanted(self._training, shared, kinds)
            except StateError as error:
                wrong = wrong or error
        raise wrong or AssertionError

    def install(self, read: Read, began: float, tell: Tell) -> Resumed:
        """Puts the training back from what was read."""
        manifest = read.manifest
        put_back(
            self._training, read.wants, read.staged, read.shared, read.mine, lambda name: read.staged[name].clone()
        )
        if read.derived is not None:
            rng.derive(read.derived, self._place.rank)
        resumed = Resumed(
            step=manifest.step,
            attempt=manifest.attempt,
            level=read.level,
            world=manifest.world,
            kind=str(manifest.parts[0].values.get("kind", "")),
            rng="restored" if read.derived is None else "derived",
            metric=manifest.metric,
            bytes=sum(each.numel() * each.element_size() for each in read.staged.values()),
            seconds=time.monotonic() - began,
        )
        tell("checkpoint.restored", **vars(resumed))
        return resumed


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TornError("a part's values are not as they were written")
    return value
