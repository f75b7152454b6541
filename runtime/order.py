"""In which order a training sees its samples: a pure function of the seed and of how many were consumed.

Samples stand in one endless line. Position p belongs to epoch p // length, and each epoch is a permutation of all
samples. The world size does not come in: it only says which part of a batch is whose. So a run that goes on with other
ranks, or other batches, takes up the line where it was left, and no sample is seen twice or missed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
"""Of the Feistel network. Four are a permutation that no cheap test tells from a random one (Luby and Rackoff 1988)."""

MOST = 1 << 62
"""Samples in a dataset, so that positions fit 64 bits."""
MASK = (1 << 64) - 1


class DataError(ValueError):
    """Data that cannot be used as asked: what · where · what to do."""


@dataclass(frozen=True)
class Order:
    """The order of `length` samples under a seed.

    The permutation of each epoch is computed and not stored: resuming at any position costs nothing, a dataset of 10^12
    samples needs no table, and it stays the same whatever NumPy's or torch's generators do in a later version.
    """

    length: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.length <= MOST:
            raise DataError(f"a dataset of {self.length} samples · an order needs 1 to 2^62 · give it data")

    def epoch(self, position: int) -> int:
        """The epoch of a position, from 0."""
        return position // self.length

    def at(self, start: int, count: int) -> NDArray[np.int64]:
        """The indices into the dataset of the positions start … start + count - 1, int64 of shape (count,)."""
        if start < 0 or count < 0:
            raise DataError(f"position {start}, {count} samples · neither can be below 0 · the checkpoint is of no use")
        positions = np.arange(start, start + count, dtype=np.uint64)
        epochs, offsets = np.divmod(positions, np.uint64(self.length))
        if not self.shuffle:
            return offsets.astype(np.int64)
        found = np.empty(count, dtype=np.uint64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            found[here] = _permuted(offsets[here], self.length, (self.seed, int(epoch)))
        return found.astype(np.int64)


@dataclass(frozen=True)
class Slice:
    """Which part of each batch of `batch` samples is a rank's: an equal, contiguous one, in the order of ranks.

    The rank takes it in `parts` micro-batches, which changes neither the batch nor its order.
    """

    batch: int
    rank: int = 0
    world: int = 1
    parts: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1 or self.batch % (self.world * self.parts):
            each = self.world * self.parts
            below = self.batch - self.batch % each
            near = " or ".join(str(size) for size in (below, below + each) if size > 0)
            parts = f" in {self.parts} parts each" if self.parts > 1 else ""
            raise DataError(
                f"a batch of {self.batch} does not divide over {self.world} ranks{parts} · the batch counts the "
                f"samples of all ranks together · take {near}, another number of ranks, or a batch that follows them: "
                "`batch:` in the run's configuration"
            )

    @property
    def size(self) -> int:
        """Samples of each rank in a batch."""
        return self.batch // self.world

    @property
    def micro(self) -> int:
        """Samples of each rank in a micro-batch."""
        return self.size // self.parts

    def start(self, position: int) -> int:
        """The first position that is this rank's in the batch that begins at `position`."""
        return position + self.rank * self.size

    def starts(self, position: int) -> range:
        """The first positions of this rank's micro-batches in the batch that begins at `position`."""
        first = self.start(position)
        return range(first, first + self.size, self.micro)


def seed_of(seed: int, position: int) -> int:
    """A seed of 63 bits for what is random about one sample, the same on whichever rank or worker prepares it."""
    return _key(seed, position) >> 1


def _permuted(offsets: NDArray[np.uint64], length: int, key: tuple[int, int]) -> NDArray[np.uint64]:
    """A permutation of 0 … length - 1 at `offsets`: a balanced Feistel network, walked until it lands inside."""
    half = max(1, ((length - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    keys = [np.uint64(_key(*key, each)) for each in range(ROUNDS)]

    def once(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> np.uint64(half), values & low
        for each in keys:
            left, right = right, left ^ (_mixed(right ^ each) & low)
        return (left << np.uint64(half)) | right

    found = once(offsets)
    while (
        outside := found >= np.uint64(length)
    ).any():  # at most 3 of 4, so it ends soon; always, for each walk is a cycle
        found[outside] = once(found[outside])
    return found


def _key(*parts: int) -> int:
    """64 bits from integers, each of which changes all of them."""
    found = 0x6D75737465720001
    for part in parts:
        found = _mixed((found ^ part) & MASK)
    return found


def _mixed(value: Any) -> Any:
    """splitmix64's step (Steele, Lea and Flood 2014) with its finalizer, of an int or of an array of uint64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)
