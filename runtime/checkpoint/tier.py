"""A folder of checkpoints: written beside, made whole, renamed into place; read only after a check.

Committing needs no communicator: each rank leaves its part in the folder, and the leader waits for them.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from runtime.checkpoint.crypt import Key, Sealer
from runtime.checkpoint.format import (
    MOST_BODY_BYTES,
    CheckpointError,
    Manifest,
    Part,
    Piece,
    TornError,
    again_of,
    head_key,
    pack,
    record,
    step_name,
    step_of,
    unpack,
)
from runtime.checkpoint.lease import LASTS_S, Lease
from runtime.checkpoint.reading import Reader
from runtime.checkpoint.storage import Storage
from runtime.checkpoint.writing import Blob, Writing
from runtime.events import Tell, silence
from runtime.place import Place
from runtime.stops.bounded import HungError, bounded

__all__ = ["Blob", "NoCheckpointError", "PartsMissingError", "Tier", "Writing"]

MANIFEST, LATEST, QUARANTINED = "manifest.json", "latest", "quarantined"
REASON = "reason.txt"


class PartsMissingError(CheckpointError):
    """Not every rank's part was there by the deadline. Nothing was committed; what was, stands."""


class NoCheckpointError(CheckpointError):
    """There is no checkpoint of that step."""


class Tier:
    """The checkpoints in one folder, which is made at the first save, if what is above it is there.

    Readers may be many; `begin` is every rank's; other changes are the leader's. Every call may raise StorageError,
    within about `stall_s` a system call. Nothing that is committed is changed by a call that fails.
    """

    def __init__(
        self,
        folder: Path,
        key: Key | None = None,
        tell: Tell = silence,
        *,
        stall_s: float = 120.0,
        lease_s: float = LASTS_S,
    ) -> None:
        self.folder = Path(folder)
        self._key, self._tell = key, tell
        self._storage = Storage(stall_s)
        self._made = False
        self._lease = Lease(self._storage, self.folder, tell, lease_s)

    # Writing.

    def claim(self, wait_s: float = 0.0) -> None:
        """Takes the folder for this process: what the leader's calls do by themselves. Raises HeldError.

        A holder on another host that died is watched for as long as a lease lasts (60 s) before it is taken over.
        """
        self._make_folder()
        self._lease.take(wait_s)

    def begin(self, step: int, place: Place, turn: int = 0) -> Writing:
        """A rank's share of a checkpoint. `turn` counts saves, alike on all ranks: no two mix parts."""
        self._make_folder()
        return Writing(self._storage, self._beside(step, place, turn), step, place, self._key, self._tell)

    def commit(
        self,
        step: int,
        place: Place,
        wait_s: float,
        *,
        turn: int = 0,
        ranks: Collection[int] | None = None,
        whole: bool = True,
        spec_digest: str = "",
        image_digest: str = "",
        config: Mapping[str, JsonValue] | None = None,
        metric: float | None = None,
        values: Mapping[str, JsonValue] | None = None,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> Manifest:
        """Makes a checkpoint of the parts that `ranks` (all, by default) have written or write within `wait_s` seconds.

        `whole`: the parts must hold every element of every array once. Raises PartsMissingError at the deadline, or as
        soon as it is known to be `hopeless`.
        """
        started = time.monotonic()
        self.claim()
        beside = self._beside(step, place, turn)
        wanted = sorted(set(range(place.world) if ranks is None else ranks))
        parts = self._parts(beside, step, place, wanted, wait_s, hopeless)
        taken = [again_of(name) for name in self._storage.names(self.folder) if step_of(name) == step]
        name = step_name(step, max(taken, default=-1) + 1)
        manifest = record(
            Manifest,
            str(beside),
            step=step,
            folder=name,
            attempt=place.attempt,
            world=place.world,
            whole=whole,
            spec_digest=spec_digest,
            image_digest=image_digest,
            created=datetime.now(UTC),
            config=dict(config or {}),
            metric=metric,
            values=dict(values or {}),
            parts=tuple(parts),
        )
        mine = {part.file for part in parts}
        for stray in self._storage.names(beside):
            if stray not in mine:
                self._storage.unlink(beside / stray)
        self._put(beside / MANIFEST, pack(manifest, "manifest", *self._sealing()))
        self._lease.renew()
        self._storage.rename(beside, self.folder / name)
        self.settle()
        self._tell(
            "checkpoint.committed",
            step=step,
            bytes=manifest.stored_bytes,
            seconds=time.monotonic() - started,
            folder=str(self.folder),
        )
        return manifest

    def settle(self) -> None:
        """Makes last what is committed, and has `latest` name it."""
        self._storage.sync_folder(self.folder)
        self._point()

    # Reading.

    def holds(self, part: Part) -> bool:
        """Whether a rank's part is in a checkpoint that readers see: its file's name is like no other's."""
        names = [name for name in self._storage.names(self.folder) if step_of(name) == part.step]
        return any(self._storage.size(self.folder / name / part.file) is not None for name in names)

    def steps(self) -> tuple[int, ...]:
        """The steps that are committed, oldest first; what is in them is for `verify` to say."""
        found = {step_of(name) for name in self._storage.names(self.folder)}
        return tuple(sorted(step for step in found if step is not None))

    def quarantined(self) -> int:
        """How many checkpoints were set aside."""
        return len(self._storage.names(self.folder / QUARANTINED))

    def read_manifest(self, step: int) -> Manifest:
        """The manifest of a step's last commit.

        Raises NoCheckpointError, TornError, NewerFormatError, KeyUnusableError.
        """
        name = self._name(step)
        path = self.folder / name / MANIFEST
        raw = self._storage.read(path, MOST_BODY_BYTES)
        if raw is None:
            raise TornError(f"{path} is missing · use an older checkpoint")
        sealed_with = head_key(raw, str(path))
        if sealed_with and self._key:
            self._key.opens(sealed_with, str(path))
        manifest = unpack(raw, Manifest, "manifest", str(path), self._key.unseal if self._key else None)
        if manifest.folder != name:
            raise TornError(f"{path} is of {manifest.folder} · the folder was renamed; use an older checkpoint")
        return manifest

    def verify(self, step: int, deep: bool = True, ranks: Collection[int] | None = None) -> Manifest:
        """The manifest, if all that it names is there: files and sizes, and where `deep` every piece's hash.

        `ranks`: only of these parts the hashes, so that ranks can share the reading. Raises TornError, which is reason
        to quarantine; and as `read_manifest`, StorageError among them, which is not.
        """
        manifest = self.read_manifest(step)
        for part in manifest.parts:
            path = self.folder / manifest.folder / part.file
            size = self._storage.size(path)
            if size != part.size:
                found = "is missing" if size is None else f"has {size} bytes, not {part.size}"
                raise TornError(f"{path} {found} · use an older checkpoint")
            if deep and (ranks is None or part.rank in ranks):
                with self._reader(manifest, part, direct=True) as reader:
                    reader.check(part.pieces)
        return manifest

    def read(self, manifest: Manifest, piece: Piece, into: memoryview | None = None) -> memoryview:
        """A piece's bytes, checked against its hash, in `into` where given. Raises TornError."""
        return self.read_all(manifest, [(piece, into)])[0]

    def read_all(
        self, manifest: Manifest, wanted: Iterable[tuple[Piece, memoryview | None]], *, direct: bool = False
    ) -> list[memoryview]:
        """As `read`, many at once: best in the order in which they lie in their files.

        `direct`: past the page cache, where no other process of this node reads the same.
        """
        jobs = list(wanted)
        found: dict[int, memoryview] = {}
        by_file: dict[str, list[int]] = {}
        for number, (piece, _) in enumerate(jobs):
            by_file.setdefault(piece.file, []).append(number)
        for part in manifest.parts:
            if numbers := by_file.get(part.file):
                with self._reader(manifest, part, direct) as reader:
                    found.update(zip(numbers, reader.read([jobs[number] for number in numbers]), strict=True))
        return [found[number] for number in range(len(jobs))]

    # Tidying.

    def quarantine(self, step: int, reason: str) -> Path:
        """Takes a step's last commit out of the readers' sight, with the reason beside it. Where it is now."""
        self._own()
        name = self._name(step)
        aside = self.folder / QUARANTINED
        self._storage.make_folder(aside)
        target = aside / f"{name}.{secrets.token_hex(4)}"
        self._storage.rename(self.folder / name, target)
        self._storage.sync_folder(aside)
        self._storage.sync_folder(self.folder)
        self._point()
        self._put(target / REASON, f"{datetime.now(UTC).isoformat()} {reason}\n".encode())
        self._tell("checkpoint.quarantined", step=step, reason=reason, folder=str(target))
        return target

    def remove(self, step: int) -> None:
        """Removes every commit of a step; out of the readers' sight first, so that none sees half of it."""
        self._own()
        names = [name for name in self._storage.names(self.folder) if step_of(name) == step]
        for name in sorted(names, key=again_of):
            gone = self.folder / f".gone-{name}.{secrets.token_hex(4)}"
            self._storage.rename(self.folder / name, gone)
            self._storage.sync_folder(self.folder)
            self._clear(gone)
        if names:
            self._point()
            self._tell("checkpoint.removed", step=step, folder=str(self.folder))

    def sweep(self) -> int:
        """Removes what unfinished saves and removals left; before any rank begins a save. How many it was."""
        self._own()
        swept = 0
        for name in self._storage.names(self.folder):
            if name.startswith((".step-", ".gone-")):
                self._clear(self.folder / name)
            elif name.startswith(".tmp-"):
                self._storage.unlink(self.folder / name)
            else:
                continue
            swept += 1
        return swept

    def close(self, limit_s: float | None = None) -> None:
        """Gives up what the folder held for this process, within `limit_s`, or the time of two calls. Never raises."""
        if self._lease.held:
            limit_s = 2 * self._storage.stall_s if limit_s is None else limit_s
            try:
                bounded(self._lease.release, limit_s, "giving the folder up")
            except HungError as hung:
                self._tell("checkpoint.lease.not_released", reason=f"{hung} · {self.folder}")
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Within.

    def _beside(self, step: int, place: Place, turn: int) -> Path:
        attempt = "".join(each if each.isalnum() or each in "-_." else "_" for each in place.attempt)[:80]
        return self.folder / f".{step_name(step)}.{attempt}.{turn}"

    def _own(self) -> None:
        self.claim()
        self._lease.renew()

    def _make_folder(self) -> None:
        """The folder, once: if it is missing later, its mount is gone, and what is below is another disk."""
        if not self._made:
            if self._storage.make_folder(self.folder):
                self._storage.sync_folder(self.folder.parent)
            self._made = True

    def _name(self, step: int) -> str:
        names = [name for name in self._storage.names(self.folder) if step_of(name) == step]
        if not names:
            raise NoCheckpointError(f"{self.folder}: there is no checkpoint of step {step}")
        return max(names, key=again_of)

    def _parts(
        self, beside: Path, step: int, place: Place, wanted: list[int], wait_s: float, hopeless: Callable[[], bool]
    ) -> list[Part]:
        deadline = time.monotonic() + wait_s
        found: dict[int, Part] = {}
        pause_s = 0.01
        while True:
            there = set(self._storage.names(beside))
            for rank in wanted:
                name = f"rank-{rank:05d}.part"
                if rank not in found and name in there:
                    found[rank] = self._part(beside / name, rank, step, place)
            missing = [rank for rank in wanted if rank not in found]
            if not missing:
                return [found[rank] for rank in wanted]
            left_s = deadline - time.monotonic()
            if left_s <= 0 or hopeless():
                shown = ", ".join(map(str, missing[:8])) + ("…" if len(missing) > 8 else "")
                raise PartsMissingError(
                    f"{beside}: no part of {len(missing)} of {len(wanted)} ranks ({shown}) within {wait_s:g} s · "
                    "see what became of them; the checkpoint is not committed"
                )
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.5)

    def _part(self, path: Path, rank: int, step: int, place: Place) -> Part:
        raw = self._storage.read(path, MOST_BODY_BYTES)
        part = unpack(raw or b"", Part, "part", str(path), self._key.unseal if self._key else None)
        if (part.rank, part.step, part.attempt) != (rank, step, place.attempt):
            raise TornError(f"{path} is of rank {part.rank}, step {part.step}, attempt {part.attempt}")
        size = self._storage.size(path.parent / part.file)
        if size != part.size:
            raise TornError(f"{path.parent / part.file} has {size} bytes, not {part.size}")
        return part

    def _reader(self, manifest: Manifest, part: Part, direct: bool) -> Reader:
        sealer: Sealer | None = None
        if part.salt:
            if self._key is None:
                raise CheckpointError(f"{part.file} of step {manifest.step} is sealed · give the runtime its key")
            sealer = self._key.file(bytes.fromhex(part.salt))
        return Reader(self._storage, self.folder / manifest.folder / part.file, sealer, direct)

    def _sealing(self) -> tuple[str, object]:
        return (self._key.id, self._key.seal) if self._key else ("", None)

    def _put(self, path: Path, raw: bytes) -> None:
        self._storage.put(path, raw, path.parent / f".tmp-{secrets.token_hex(8)}")

    def _point(self) -> None:
        steps = self.steps()
        self._put(self.folder / LATEST, f"{self._name(steps[-1])}\n".encode() if steps else b"")

    def _clear(self, folder: Path) -> None:
        for name in self._storage.names(folder):
            self._storage.unlink(folder / name)
        self._storage.remove_folder(folder)
