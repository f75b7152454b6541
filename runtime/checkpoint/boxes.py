"""Boxes of an array: whether some of them hold every element exactly once. Pure."""

import math
from collections.abc import Sequence

Extent = tuple[int, ...]


def tiles(shape: Sequence[int], boxes: Sequence[tuple[Extent, Extent]]) -> bool:
    """Whether boxes (offset, extent) cover an array of `shape` without gap or overlap. Empty boxes do not count."""
    boxes = [box for box in boxes if math.prod(box[1])]
    if not math.prod(shape):
        return not boxes
    # The sum is quick and refuses most; with it a cover is enough: an overlap would leave a gap elsewhere.
    return sum(math.prod(extent) for _, extent in boxes) == math.prod(shape) and _cover(shape, boxes, 0)


def _cover(shape: Sequence[int], boxes: Sequence[tuple[Extent, Extent]], axis: int) -> bool:
    """Whether the boxes leave no gap, looking at the axes from `axis` on."""
    if axis == len(shape):
        return bool(boxes)
    if all(not offset[axis] and extent[axis] == shape[axis] for offset, extent in boxes):
        return bool(boxes) and _cover(shape, boxes, axis + 1)
    starts: dict[int, list[tuple[Extent, Extent]]] = {}
    for box in boxes:
        starts.setdefault(box[0][axis], []).append(box)
    edges = sorted({0, *starts, *(offset[axis] + extent[axis] for offset, extent in boxes)})
    if edges[-1] != shape[axis]:
        return False
    here: list[tuple[Extent, Extent]] = []
    for edge in edges[:-1]:
        here = [box for box in here if box[0][axis] + box[1][axis] > edge] + starts.get(edge, [])
        if not _cover(shape, here, axis + 1):
            return False
    return True
