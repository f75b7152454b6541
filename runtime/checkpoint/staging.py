"""Reads this rank's part of a checkpoint into host memory, in whatever boxes it was written."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.checkpoint.format import ITEM_BYTES, Manifest, Piece
from runtime.checkpoint.pieces import Box, filling, run, within
from runtime.checkpoint.snapshot import Arena, placed

if TYPE_CHECKING:
    from torch import Tensor

Read = Callable[[Piece, memoryview], None]
"""Fills a buffer of `plain_bytes` with a piece. Raises where the bytes are not the ones that were written."""


@dataclass(frozen=True)
class Slot:
    """A box of a saved array that this rank wants, and its type."""

    name: str
    dtype: str
    box: Box

    @property
    def bytes(self) -> int:
        return self.box.elements * ITEM_BYTES[self.dtype]


def staged(slots: Sequence[Slot], manifest: Manifest, read: Read, threads: int, arena: Arena) -> "dict[str, Tensor]":
    """The wanted boxes by name, as host tensors in the arena. `read` is called from `threads` threads.

    Raises GapError where the pieces do not hold all of them, and what `read` raises.
    """
    from runtime.checkpoint.install import dtype

    saved: dict[str, list[Piece]] = {}
    for piece in manifest.pieces:
        saved.setdefault(piece.name, []).append(piece)
    jobs = [(slot, saved.get(slot.name, []), *each) for slot in slots for each in fills(slot, saved)]
    at, size = placed([slot.bytes for slot in slots])
    block = arena.block(size, pinned=False)
    views = {slot.name: block[start : start + slot.bytes] for start, slot in zip(at, slots, strict=True)}
    found = {slot.name: views[slot.name].view(dtype(slot.dtype)).view(slot.box.extent) for slot in slots}

    def fill(job: "tuple[Slot, list[Piece], int, Box]") -> None:
        slot, pieces, index, common = job
        piece = pieces[index]
        box = Box(piece.offset, piece.extent)
        start = run(common, slot.box)
        if common == box and start is not None:
            first = start * ITEM_BYTES[slot.dtype]
            read(piece, memoryview(views[slot.name].numpy())[first : first + piece.plain_bytes])
            return
        import torch

        raw = torch.empty(piece.plain_bytes, dtype=torch.uint8)
        read(piece, memoryview(raw.numpy()))
        values = raw.view(dtype(slot.dtype)).view(box.extent)
        found[slot.name][within(common, slot.box)] = values[within(common, box)]

    with ThreadPoolExecutor(threads, thread_name_prefix="muster-read") as pool:
        for done in [pool.submit(fill, job) for job in jobs]:
            done.result()
    return found


def fills(slot: Slot, saved: Mapping[str, Sequence[Piece]]) -> list[tuple[int, Box]]:
    """Which pieces fill the slot, as pieces.filling."""
    return filling(slot.box, [Box(piece.offset, piece.extent) for piece in saved.get(slot.name, [])])
