"""What the ranks of a job agree on, apart from the training's own communication and bounded in time.

The collectives go over a gloo group of their own: a broken NCCL communicator does not take them along, and each has a
time limit, so that a lost peer is an error and not a hang.
"""

import os
from datetime import timedelta
from typing import Any

from runtime.place import Place


class PeerLostError(Exception):
    """A peer did not answer within the time limit, or its connection broke."""


class Control:
    """Agreement between all ranks of a job. With one rank, and without torch.distributed, each is its own answer.

    All ranks call the same methods in the same order. Each raises PeerLostError after `limit_s` seconds.
    """

    def __init__(self, place: Place, limit_s: float = 60.0) -> None:
        self.place = place
        self._group: Any = None
        if place.world > 1:
            import torch.distributed as dist

            if not dist.is_initialized():
                raise RuntimeError(
                    f"there are {place.world} ranks and no process group · "
                    "call torch.distributed.init_process_group() before the runtime is made"
                )
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=limit_s))

    def highest(self, *values: int) -> tuple[int, ...]:
        """The highest of each value over all ranks."""
        return self._reduced(values, "MAX")

    def lowest(self, *values: int) -> tuple[int, ...]:
        """The lowest of each value over all ranks."""
        return self._reduced(values, "MIN")

    def begin_highest(self, *values: int) -> "Pending":
        """As `highest`, without waiting: the answer is asked for later, so that a step does not wait for it."""
        if self._group is None:
            return Pending(values)
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(values, dtype=torch.int64)
        try:
            return Pending(values, tensor, dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._group, async_op=True))
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None

    def begin_rows(self, *values: int) -> "Rows":
        """Each rank's values to rank 0, as many on each, without waiting for anybody."""
        if self._group is None:
            return Rows([values])
        import torch
        import torch.distributed as dist

        own = torch.tensor(values, dtype=torch.int64)
        found = [torch.zeros_like(own) for _ in range(self.place.world)] if self.place.rank == 0 else None
        try:
            work = dist.gather(own, found, dst=0, group=self._group, async_op=True)
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None
        return Rows([], own, found, work)

    def gather(self, value: bytes, limit: int = 1 << 20) -> list[bytes]:
        """Every rank's value, by rank. Raises ValueError for one of more than `limit` bytes, on every rank."""
        (longest,) = self.highest(len(value))
        if longest > limit:
            raise ValueError(f"a rank has {longest} bytes to tell, the limit is {limit}")
        if self._group is None:
            return [value]
        import torch
        import torch.distributed as dist

        # Length first: bytes that end in zeros stay whole. No pickle.
        own = torch.zeros(8 + longest, dtype=torch.uint8)
        own[:8] = torch.frombuffer(bytearray(len(value).to_bytes(8, "little")), dtype=torch.uint8)
        if value:
            own[8 : 8 + len(value)] = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        found = [torch.zeros_like(own) for _ in range(self.place.world)]
        try:
            dist.all_gather(found, own, group=self._group)
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None
        raw = [each.numpy().tobytes() for each in found]
        return [each[8 : 8 + int.from_bytes(each[:8], "little")] for each in raw]

    def named(self, attempt: str) -> str:
        """A name for this start of the job that no other has, the same on all ranks, and begins with rank 0's own.

        torchrun's agents count the starts each for itself, and those after a change of membership not at all.
        """
        return self.gather(f"{attempt}.{os.urandom(4).hex()}".encode())[0].decode()

    def barrier(self) -> None:
        """Waits until all ranks are here."""
        self.highest(0)

    def close(self) -> None:
        """Gives the group up, if the process group still stands. Never raises."""
        if self._group is None:
            return
        import contextlib

        import torch.distributed as dist

        with contextlib.suppress(Exception):
            if dist.is_initialized():
                dist.destroy_process_group(self._group)
        self._group = None

    def _reduced(self, values: tuple[int, ...], operation: str) -> tuple[int, ...]:
        if self._group is None:
            return values
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(values, dtype=torch.int64)
        try:
            dist.all_reduce(tensor, getattr(dist.ReduceOp, operation), group=self._group)
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None
        return tuple(int(each) for each in tensor)


class Pending:
    """An agreement under way."""

    def __init__(self, values: tuple[int, ...], tensor: Any = None, work: Any = None) -> None:
        self._values, self._tensor, self._work = values, tensor, work

    def wait(self) -> tuple[int, ...]:
        """The answer. Raises PeerLostError."""
        if self._work is None:
            return self._values
        try:
            self._work.wait()
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None
        return tuple(int(each) for each in self._tensor)


class Rows:
    """Values of all ranks, on their way to rank 0."""

    def __init__(self, rows: list[tuple[int, ...]], own: Any = None, found: Any = None, work: Any = None) -> None:
        self._rows, self._own, self._found, self._work = rows, own, found, work

    @property
    def here(self) -> bool:
        """Whether this rank's part is done: then `wait` does not wait."""
        return self._work is None or bool(self._work.is_completed())

    def wait(self) -> list[tuple[int, ...]]:
        """The values by rank; none on other ranks than 0. Raises PeerLostError."""
        if self._work is None:
            return self._rows
        try:
            self._work.wait()
        except RuntimeError as lost:
            raise PeerLostError(str(lost)) from None
        return [tuple(each.tolist()) for each in self._found or ()]
