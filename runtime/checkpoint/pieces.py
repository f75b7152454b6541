"""Who writes which box of which array, and which saved boxes fill a wanted one. Pure: no torch, no communication.

A box is a part of a global array: where it begins (`offset`) and how far it goes (`extent`), one number a dimension, in
elements. Ranks that hold the same box share the writing of it by bytes. All of them work the shares out by themselves
and come to the same answer.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Box(NamedTuple):
    """A part of a global array, in elements."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.extent)


def whole(shape: Sequence[int]) -> Box:
    """All of an array."""
    return Box((0,) * len(shape), tuple(shape))


class GapError(ValueError):
    """Saved boxes do not cover a wanted one, or lie on one another."""


@dataclass(frozen=True)
class Held:
    """A box that this rank holds, and all ranks that hold the same one, itself among them, in order.

    `equal`: the holders' bytes are the same. Where they are not (buffers that each rank fills from its own batches),
    the first holder's count.
    """

    name: str
    box: Box
    item_bytes: int
    holders: tuple[int, ...]
    equal: bool = True


@dataclass(frozen=True)
class Share:
    """A box that this rank writes: always to its node's own store, and to the shared one where `shared` says so."""

    held: Held
    box: Box
    shared: bool

    @property
    def bytes(self) -> int:
        return self.box.elements * self.held.item_bytes


def split(box: Box, item_bytes: int, most_bytes: int) -> list[Box]:
    """The box in parts of at most `most_bytes` (but at least one element), each contiguous within it, in order."""
    if box.elements <= 1 or box.elements * item_bytes <= most_bytes:
        return [box] if box.elements else []
    first = next(axis for axis, length in enumerate(box.extent) if length > 1)
    row = box.elements // box.extent[first] * item_bytes
    step = max(1, most_bytes // row)
    found = []
    for start in range(0, box.extent[first], step):
        length = min(step, box.extent[first] - start)
        offset = tuple(at + start if axis == first else at for axis, at in enumerate(box.offset))
        part = Box(offset, tuple(length if axis == first else each for axis, each in enumerate(box.extent)))
        found += split(part, item_bytes, most_bytes) if row > most_bytes else [part]
    return found


def balanced(sizes: Sequence[int], bins: int) -> list[int]:
    """A bin for each size: the largest first, each into the least filled (at most 4/3 of the best load)."""
    found = [0] * len(sizes)
    filled = [(0, each) for each in range(bins)]
    for index in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        load, into = heapq.heappop(filled)
        found[index] = into
        heapq.heappush(filled, (load + sizes[index], into))
    return found


def shares(held: Iterable[Held], rank: int, local_world: int, most_bytes: int) -> list[Share]:
    """What this rank writes, in the order of `held`.

    Each node's ranks write all boxes that the node holds, shared among them, so that a node's own store is whole by
    itself; of these, each box is written to the shared store by one node. A node is `local_world` ranks in order.
    """
    groups: dict[tuple[tuple[int, ...], bool], list[tuple[Held, Box]]] = {}
    for each in held:
        if rank not in each.holders:
            raise ValueError(f"rank {rank} is not among the holders of {each.name}: {each.holders}")
        parts = [(each, part) for part in split(each.box, each.item_bytes, most_bytes)]
        groups.setdefault((each.holders, each.equal), []).extend(parts)
    found = []
    node = rank // local_world
    for (holders, equal), parts in groups.items():
        nodes = sorted({each // local_world for each in holders})
        local = [each for each in holders if each // local_world == node]
        if not equal:
            found += [Share(each, part, shared=nodes[0] == node) for each, part in parts if rank == local[0]]
            continue
        sizes = [part.elements * each.item_bytes for each, part in parts]
        at = balanced(sizes, len(nodes))
        for index, writer in enumerate(nodes):
            mine = [part for part, into in zip(parts, at, strict=True) if into == index]
            by = balanced([part.elements * each.item_bytes for each, part in mine], len(local))
            found += [
                Share(each, part, shared=writer == node)
                for (each, part), into in zip(mine, by, strict=True)
                if local[into] == rank
            ]
    return found


def overlap(one: Box, other: Box) -> Box | None:
    """What two boxes of the same array have in common."""
    offset = tuple(map(max, one.offset, other.offset))
    ends = [min(a + m, b + n) for a, m, b, n in zip(one.offset, one.extent, other.offset, other.extent, strict=True)]
    extent = tuple(end - start for start, end in zip(offset, ends, strict=True))
    return Box(offset, extent) if all(each > 0 for each in extent) else None


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """The slices that cut the box out of an array that holds `outer`."""
    return tuple(
        slice(at - start, at - start + length)
        for at, start, length in zip(box.offset, outer.offset, box.extent, strict=True)
    )


def run(box: Box, outer: Box) -> int | None:
    """Where the box begins in the C-ordered elements of `outer`, if it is one run of them; else none."""
    for axis, (length, full) in enumerate(zip(box.extent, outer.extent, strict=True)):
        if length != full and any(each != 1 for each in box.extent[:axis]):
            return None
    at = 0
    for start, first, full in zip(box.offset, outer.offset, outer.extent, strict=True):
        at = at * full + start - first
    return at


def filling(wanted: Box, saved: Sequence[Box]) -> list[tuple[int, Box]]:
    """Which saved boxes give which parts of the wanted one: their indices, and the parts in global terms.

    A box that was saved twice (by replicas) is taken once. Raises GapError where an element is in no saved box, or in
    two that differ.
    """
    found: list[tuple[int, Box]] = []
    seen: set[Box] = set()
    for index, box in enumerate(saved):
        common = overlap(wanted, box)
        if common is not None and box not in seen:
            seen.add(box)
            found.append((index, common))
    active: list[Box] = []
    for _, part in sorted(found, key=lambda each: each[1].offset):
        if part.offset:
            active = [each for each in active if each.offset[0] + each.extent[0] > part.offset[0]]
        for each in active:
            if overlap(each, part) is not None:
                raise GapError(f"saved boxes lie on one another: {each} and {part}")
        active.append(part)
    covered = sum(part.elements for _, part in found)
    if covered != wanted.elements:
        raise GapError(f"saved boxes hold {covered} of {wanted.elements} elements of {wanted}")
    return found
