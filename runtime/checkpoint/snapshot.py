"""Copies of tensors in host memory that is kept and used again: training waits for the copy, not for the disk.

The memory is one block, made at the first need and grown when it must: touching new pages costs ten times the copy. It
is in huge pages where the kernel gives them, and pinned where the tensors are on a GPU.
"""

import math
import mmap
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.pieces import Box, within

if TYPE_CHECKING:
    from torch import Tensor

ALIGN = 4096
"""Bytes. Each copy begins on a page, as writing past the page cache wants it."""

SPAN_BYTES = 64 << 20
"""What one thread copies at a time."""


@dataclass(frozen=True)
class Source:
    """A box to copy, and the local tensor that holds `held` of the global array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    box: Box
    held: Box
    tensor: "Tensor"

    @property
    def bytes(self) -> int:
        return self.box.elements * self.tensor.element_size()


@dataclass(frozen=True)
class Copy:
    """A box that was copied. `buffer` has its bytes, in C order, until the next `take`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    box: Box
    buffer: memoryview


class ChangedError(CheckpointError):
    """A tensor was changed while it was copied: the copy is of no step, and is not written."""


class Arena:
    """A block of host memory that grows and is handed out anew each time."""

    def __init__(self) -> None:
        self._block: Tensor | None = None
        self._pinned = False

    def block(self, size: int, pinned: bool, touched: bool = True) -> "Tensor":
        """At least `size` bytes, as a tensor of bytes. What was handed out before may be overwritten."""
        if self._block is None or self._block.numel() < size or (pinned and not self._pinned):
            self._block = None  # the old one is given back before the new one is asked for
            self._block, self._pinned = allocated(size, pinned, touched), pinned
        return self._block

    def release(self, beyond: int = 0) -> None:
        """Gives the block back where it has more than `beyond` bytes."""
        if self._block is not None and self._block.numel() > beyond:
            self._block = None


def allocated(size: int, pinned: bool, touched: bool) -> "Tensor":
    """New host memory; `touched`: its pages are there already, which takes time now instead of at the first use."""
    import torch

    size = max(ALIGN, math.ceil(size / ALIGN) * ALIGN)
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    found = torch.frombuffer(block, dtype=torch.uint8)
    return found.zero_() if touched else found


def placed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each of these many bytes begins in one block, and how large that is."""
    at, found = 0, []
    for size in sizes:
        found.append(at)
        at += math.ceil(size / ALIGN) * ALIGN
    return found, at


class Snapshot:
    """Takes copies of boxes of live tensors. One at a time: `take` overwrites what the last one gave."""

    def __init__(self, arena: Arena | None = None) -> None:
        self._arena = arena or Arena()
        self._event: Any = None
        self._later: Future[None] | None = None

    def take(self, sources: Sequence[Source], later: Collection[str] = ()) -> list[Copy]:
        """Copies; when it returns, the sources may be changed, but for those named in `later`.

        Copies from a GPU may still be under way then: later work on the GPU is queued behind them. `ready` waits.
        Those in host memory that are named in `later` are copied by a thread: `settle` before they are changed.
        """
        import torch

        devices = [each.tensor.device for each in sources if each.tensor.is_cuda]
        at, size = placed([each.bytes for each in sources])
        block = self._arena.block(size, pinned=bool(devices))
        views = [block[start : start + each.bytes] for start, each in zip(at, sources, strict=True)]
        with torch.no_grad():
            if devices:
                self._event = _copied_aside(sources, views, devices[0])
            else:
                pairs = list(zip(sources, views, strict=True))
                _copied([each for each in pairs if each[0].name not in later])
                if aside := [each for each in pairs if each[0].name in later]:
                    self._later = _started(aside)
        return [
            Copy(each.name, each.dtype, each.shape, each.box, memoryview(view.numpy()))  # type: ignore[arg-type]
            for each, view in zip(sources, views, strict=True)
        ]

    def settle(self) -> None:
        """Waits until all sources of the last `take` may be changed. Never raises."""
        if self._later is not None:
            wait([self._later])

    def ready(self) -> None:
        """Waits until the bytes of the last `take` are there. Raises ChangedError where sources changed meanwhile."""
        if self._later is not None:
            self._later.result()
        if self._event is not None:
            self._event.synchronize()
            self._event = None


def _started(pairs: "Sequence[tuple[Source, Tensor]]") -> "Future[None]":
    """Has a thread copy them."""
    done: Future[None] = Future()
    versions = [each.tensor._version for each, _ in pairs]

    def work() -> None:
        try:
            _copied(pairs)
            for (each, _), was in zip(pairs, versions, strict=True):
                if each.tensor._version != was:
                    raise ChangedError(
                        f"{each.name} was changed while it was copied, and not by the optimizer's step · "
                        "change it before the save, or set overlap: false"
                    )
            done.set_result(None)
        except BaseException as wrong:
            done.set_exception(wrong)

    threading.Thread(target=work, name="muster-copy", daemon=True).start()
    return done


def _copied(pairs: "Sequence[tuple[Source, Tensor]]", non_blocking: bool = False) -> None:
    spans = []
    for each, view in pairs:
        part = each.tensor[within(each.box, each.held)]
        if part.is_cpu and part.is_contiguous() and not part.is_neg() and not part.is_conj():
            raw = part.detach().reshape(-1).view(view.dtype)
            spans += list(zip(raw.split(SPAN_BYTES), view.split(SPAN_BYTES), strict=True))
        else:
            view.view(each.tensor.dtype).view(part.shape).copy_(part, non_blocking=non_blocking)
    _copied_as_bytes(spans)


def _copied_as_bytes(spans: "Sequence[tuple[Tensor, Tensor]]") -> None:
    """By memcpy, which writes past the caches: a third faster than torch's copy. As many threads as torch would use."""
    import torch

    def copy(span: "tuple[Tensor, Tensor]") -> None:
        np.copyto(span[1].numpy(), span[0].numpy())

    threads = min(torch.get_num_threads(), len(spans))
    if threads < 2:
        for each in spans:
            copy(each)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="muster-copy") as pool:
        for _ in pool.map(copy, spans):
            pass


def _copied_aside(sources: "Sequence[Source]", views: "Sequence[Tensor]", device: Any) -> Any:
    """Copies on a stream of their own; the training's stream goes on behind them. Returns the event of their end."""
    import torch

    training, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    aside.wait_stream(training)
    with torch.cuda.stream(aside):
        _copied(list(zip(sources, views, strict=True)), non_blocking=True)
        event = torch.cuda.Event()
        event.record(aside)
    training.wait_event(event)
    return event
