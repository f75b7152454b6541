"""Copies of tensors are what the tensors were, whatever their type, shape and place in memory."""

import pytest
import torch

from runtime.checkpoint import snapshot
from runtime.checkpoint.pieces import Box, whole
from runtime.checkpoint.snapshot import Arena, Snapshot, Source

TENSORS = {
    "plain": torch.rand(300, 7),
    "bfloat16": torch.rand(65, 33).to(torch.bfloat16),
    "bool": torch.rand(1000) > 0.5,
    "complex": torch.randn(20, 3, dtype=torch.complex64),
    "conjugate": torch.randn(20, 3, dtype=torch.complex64).conj(),
    "negative": torch.randn(9, dtype=torch.complex64).conj().imag,
    "float8": torch.rand(64).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 5),
    "transposed": torch.rand(40, 50).t(),
    "strided": torch.rand(100)[::3],
    "expanded": torch.rand(1, 9).expand(4, 9),
    "parameter": torch.nn.Parameter(torch.rand(8, 8)),
}


def source(name: str, tensor: torch.Tensor, box: Box | None = None) -> Source:
    held = whole(tuple(tensor.shape))
    return Source(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), box or held, held, tensor)


def values(copy: snapshot.Copy, like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(bytearray(copy.buffer), dtype=like.dtype).view(shape) if copy.buffer.nbytes else like


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("span", [snapshot.SPAN_BYTES, 4096])
def test_a_copy_has_the_very_values(threads: int, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SPAN_BYTES", span)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    copies = Snapshot().take([source(name, each) for name, each in TENSORS.items()])
    for copy, tensor in zip(copies, TENSORS.values(), strict=True):
        found = values(copy, tensor, tuple(tensor.shape))
        assert torch.equal(found.contiguous().view(torch.uint8), tensor.resolve_conj().resolve_neg().contiguous()
                           .view(torch.uint8)) if tensor.ndim else found == tensor, copy.name  # fmt: skip


@pytest.mark.parametrize("box", [Box((10, 0), (20, 7)), Box((0, 2), (300, 3)), Box((299, 6), (1, 1))])
def test_a_box_is_copied_alone(box: Box) -> None:
    tensor = TENSORS["plain"]
    (copy,) = Snapshot().take([source("w", tensor, box)])
    (row, column), (rows, columns) = box.offset, box.extent
    expected = tensor[row : row + rows, column : column + columns]
    assert torch.equal(values(copy, tensor, box.extent), expected)


def test_an_arena_is_given_back_only_beyond_what_is_still_of_use() -> None:
    arena = Arena()
    first = arena.block(1 << 20, pinned=False)
    arena.release(beyond=1 << 20)
    assert arena.block(1 << 10, pinned=False).data_ptr() == first.data_ptr()
    arena.release(beyond=(1 << 20) - 1)
    assert arena.block(1 << 10, pinned=False).numel() < first.numel()
