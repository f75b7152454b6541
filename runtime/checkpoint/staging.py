"""Reads this rank's part of a checkpoint into host memory, in whatever boxes it was written."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.checkpoint.format import ITEM_BYTES, Manifest, Piece
from runtime.checkpoint.pieces import Box, filling, run, within
from runtime.checkpoint.snapshot import Arena, placed

if TYPE_CHECKING:
    from torch import Tensor

ReadAll = Callable[[Sequence[tuple[Piece, memoryview]]], object]
"""Fills each buffer of `plain_bytes` with its piece. Raises where bytes are not the ones that were written."""

BATCH_BYTES = 64 << 20
"""How much one call of ReadAll reads: what is copied into place afterwards needs as much memory besides."""


@dataclass(frozen=True)
class Slot:
    """A box of a saved array that this rank wants, and its type."""

    name: str
    dtype: str
    box: Box

    @property
    def bytes(self) -> int:
        return self.box.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Fill:
    """A piece that gives `common` of a slot."""

    slot: Slot
    piece: Piece
    common: Box

    @property
    def box(self) -> Box:
        """All of what the piece holds."""
        return Box(self.piece.offset, self.piece.extent)

    @property
    def start(self) -> int | None:
        """The byte of the slot where the piece can be read to as it is; none where it must be taken apart."""
        at = run(self.common, self.slot.box)
        return at * ITEM_BYTES[self.slot.dtype] if at is not None and self.common == self.box else None


def plan(slots: Sequence[Slot], manifest: Manifest) -> list[Fill]:
    """What is read for these slots, in the order of the files. Raises GapError where the pieces do not hold all."""
    saved: dict[str, list[Piece]] = {}
    for piece in manifest.pieces:
        saved.setdefault(piece.name, []).append(piece)
    found = []
    for slot in slots:
        pieces = saved.get(slot.name, [])
        for index, common in filling(slot.box, [Box(each.offset, each.extent) for each in pieces]):
            found.append(Fill(slot, pieces[index], common))
    return sorted(found, key=lambda each: (each.piece.file, each.piece.at))


def batches(fills: Sequence[Fill]) -> list[list[Fill]]:
    """Neighbours together, each batch of about BATCH_BYTES."""
    found: list[list[Fill]] = []
    size = BATCH_BYTES
    for each in fills:
        if size >= BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.piece.size
    return found


def staged(slots: Sequence[Slot], manifest: Manifest, read: ReadAll, threads: int, arena: Arena) -> "dict[str, Tensor]":
    """The wanted boxes by name, as host tensors in the arena. `read` is called from `threads` threads.

    Raises GapError where the pieces do not hold all of them, and what `read` raises.
    """
    import torch

    from runtime.checkpoint.install import dtype

    work = batches(plan(slots, manifest))
    at, size = placed([slot.bytes for slot in slots])
    block = arena.block(size, pinned=False, touched=False)
    views = {slot.name: block[start : start + slot.bytes] for start, slot in zip(at, slots, strict=True)}
    found = {slot.name: views[slot.name].view(dtype(slot.dtype)).view(slot.box.extent) for slot in slots}

    def fill(batch: list[Fill]) -> None:
        wanted, apart = [], []
        for each in batch:
            if each.start is not None:
                into = views[each.slot.name][each.start : each.start + each.piece.plain_bytes]
            else:
                into = torch.empty(each.piece.plain_bytes, dtype=torch.uint8)
                apart.append((each, into))
            wanted.append((each.piece, memoryview(into.numpy())))  # type: ignore[arg-type]
        read(wanted)
        for each, raw in apart:
            values = raw.view(dtype(each.slot.dtype)).view(each.box.extent)
            found[each.slot.name][within(each.common, each.slot.box)] = values[within(each.common, each.box)]

    with ThreadPoolExecutor(threads, thread_name_prefix="muster-read") as pool:
        for done in [pool.submit(fill, batch) for batch in work]:
            done.result()
    return found
