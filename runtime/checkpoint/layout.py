"""How this rank's tensors lie in the global arrays, and which other ranks hold the same parts."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runtime.checkpoint.install import local, told_dtype
from runtime.checkpoint.pieces import Box, Held, Share, shares, split, whole
from runtime.checkpoint.snapshot import Source
from runtime.checkpoint.state import Captured, StateError, sharded
from runtime.control import Control
from runtime.place import Place

if TYPE_CHECKING:
    from torch import Tensor


def box(tensor: "Tensor") -> Box:
    """The part of the global array that this rank holds: a DTensor's shard, all of any other tensor.

    Raises StateError for a sum that is not made yet, and for a kind of tensor whose parts are not known here.
    """
    import torch

    if sharded(tensor):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        if any(each.is_partial() for each in tensor.placements):
            raise StateError("a DTensor holds partial sums · redistribute it before it is saved")
        extent, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return Box(tuple(offset), tuple(extent))
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or tensor.layout is not torch.strided:
        raise StateError(
            f"a tensor of kind {type(tensor).__name__} ({tensor.layout}) cannot be saved by its parts · "
            "use plain tensors or DTensors (fully_shard, parallelize_module)"
        )
    return whole(tensor.shape)


def holders(tensor: "Tensor", alike: Sequence[int]) -> tuple[int, ...]:
    """The ranks that hold the same part: a DTensor's replicas, `alike` for any other tensor."""
    if not sharded(tensor):
        return tuple(alike)
    mesh, at = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if at is None:
        raise StateError("a DTensor lies on a mesh that this rank is not part of · save it where it lies")
    index = tuple(
        slice(None) if placement.is_replicate() else coordinate
        for placement, coordinate in zip(tensor.placements, at, strict=True)
    )
    return tuple(sorted(int(each) for each in mesh.mesh[index].flatten()))


def digest(tensors: "Mapping[str, Tensor]") -> bytes:
    """Of the names, types and shapes of all tensors: ranks with the same one hold the same plain tensors."""
    told = hashlib.sha256()
    for name, each in sorted(tensors.items()):
        told.update(f"{name} {told_dtype(each)} {tuple(each.shape)}\n".encode())
    return told.digest()


class Layout:
    """Which boxes this rank copies and writes. Asks the other ranks only when the layout has changed."""

    def __init__(self, place: Place, local_world: int, piece_bytes: int) -> None:
        self._place, self._local_world, self._piece_bytes = place, local_world, piece_bytes
        self._digest = b""
        self._alike = tuple(range(place.world))

    def changed(self, captured: Captured) -> bool:
        """Whether the tensors are others than at the last agreement."""
        return digest(captured.tensors) != self._digest

    def agree(self, captured: Captured, control: Control) -> None:
        """Learns which ranks hold the same plain tensors. All ranks call it at the same step. Raises PeerLostError."""
        self._digest = digest(captured.tensors)
        told = control.gather(self._digest)
        self._alike = tuple(rank for rank, each in enumerate(told) if each == self._digest)

    @property
    def leads(self) -> bool:
        """Whether this rank tells the values that it shares with the ranks that hold the same."""
        return self._place.rank == self._alike[0]

    def sources(self, captured: Captured) -> list[tuple[Source, Share]]:
        """What this rank copies and writes."""
        rank, held, tensors = self._place.rank, [], {}
        for name, each in captured.tensors.items():
            equal = name in captured.equal or sharded(each)
            held.append(Held(name, box(each), each.element_size(), holders(each, self._alike), equal))
            tensors[name] = each
        for name, each in captured.own.items():
            held.append(Held(name, whole(each.shape), each.element_size(), (rank,)))
            tensors[name] = each
        return [
            (source(tensors[each.held.name], each.held, each.box), each)
            for each in shares(held, rank, self._local_world, self._piece_bytes)
        ]

    def everything(self, captured: Captured) -> list[Source] | None:
        """All of the state, for a rank that writes it alone; none where it holds only a part of some tensor."""
        found = []
        for name, each in (captured.tensors | captured.own).items():
            part = box(each)
            if part != whole(each.shape):
                return None
            held = Held(name, part, each.element_size(), (self._place.rank,))
            found += [source(each, held, cut) for cut in split(part, held.item_bytes, self._piece_bytes)]
        return found


def source(tensor: "Tensor", held: Held, part: Box) -> Source:
    """A box of a live tensor, to be copied."""
    return Source(held.name, told_dtype(tensor), tuple(tensor.shape), part, held.box, local(tensor))
