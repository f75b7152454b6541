"""Batches whose place in the data is known, so that a run resumes at the very sample, at any world size.

What counts is what the training consumed. Batches that workers prepared ahead, or that the loop took and lost with a
failed step, are prepared again.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import get_worker_info as worker

from runtime.batch import BatchConfig, share
from runtime.order import DataError, Order, Slice, seed_of
from runtime.place import Place
from runtime.stops.signals import shield

TAKEN = {"batch_size", "batch_sampler", "collate_fn", "drop_last", "generator", "in_order", "num_workers", "sampler"}
"""Options of a DataLoader that `Batches` sets by itself."""
COPIED = ("pin_memory", "timeout", "multiprocessing_context", "prefetch_factor", "worker_init_fn")
"""Options that a DataLoader handed over keeps."""


@runtime_checkable
class Sequential(Protocol):
    """Data that is read in order, as from a stream or an archive: it has no `[index]`, but it can begin anywhere."""

    def begin(self, position: int) -> Iterator[Any]:
        """All ranks' samples from `position` on: the same on every rank, and the same each time."""
        ...


class Batches:
    """The batches of one rank, from where the training is.

    Iterating goes to the end of the epoch; `until` further. Batches are always full: the last of an epoch takes its
    missing samples from the next one, which begins that much later. `used` says that the training has consumed what
    was handed out; only then it counts. A batch may come in several micro-batches (`parts`), always all of them.
    """

    def __init__(
        self,
        source: Any,
        batch: int | BatchConfig,
        *,
        seed: int = 0,
        shuffle: bool = True,
        place: Place | None = None,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        **loader: Any,
    ) -> None:
        """Args: source, a dataset with `len` and `[index]`, or a `Sequential`, which comes in its own order; batch, the
        samples of all ranks together in a step, or the `batch` of a run's configuration, which makes micro-batches of
        it and follows the number of ranks; workers, processes that prepare batches, which do not see the
        signals that are meant for the job; loader, further options of torch's DataLoader. What a dataset draws at
        random for a sample (from random, numpy.random or torch) depends on seed and position alone. Raises DataError.
        """
        if wrong := sorted(TAKEN & loader.keys()):
            raise DataError(
                f"{', '.join(wrong)} · batches are made from source, batch, seed and workers · leave it out"
            )
        self.source, self.seed, self.workers = source, seed, workers
        rank, world = (place.rank, place.world) if place else (0, 1)
        if isinstance(batch, BatchConfig):
            step = share(batch, world)
            self.slice = Slice(step.batch, rank, world, step.accumulate)
        else:
            self.slice = Slice(batch, rank, world)
        self.order: Order | None = None
        if not isinstance(source, Sequential):
            if not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
                raise DataError(
                    f"{type(source).__name__} · it has neither len and [index] nor begin(position), so a run could not "
                    "find its place in it again · give it one of them (runtime.data.Sequential)"
                )
            self.order = Order(len(source), seed, shuffle)
        self._collate, self._options = collate, loader
        self.consumed = 0
        """Samples of all ranks that the training has consumed since it began, over all epochs."""
        self._handed = 0

    @property
    def batch(self) -> int:
        """Samples of all ranks in a step."""
        return self.slice.batch

    @property
    def parts(self) -> int:
        """Micro-batches of a step on this rank: what iterating gives."""
        return self.slice.parts

    @property
    def epoch(self) -> int:
        """Epochs that are over. Of data without a length it is 0 for ever."""
        return self.order.epoch(self.consumed) if self.order else 0

    def __len__(self) -> int:
        """Micro-batches to the end of the epoch. Raises TypeError where the data has no length."""
        if self.order is None:
            raise TypeError(f"{type(self.source).__name__} has no length")
        return self.parts * math.ceil(((self.epoch + 1) * self.order.length - self.consumed) / self.batch)

    def __iter__(self) -> Iterator[Any]:
        return self.until((self.epoch + 1) * self.order.length if self.order else None)

    def until(self, end: int | None) -> Iterator[Any]:
        """Micro-batches from where the training is until `end` samples are handed out, or for ever."""
        self._handed = self.consumed
        loader = self._loader(self.consumed, end)
        with shield() if self.workers else nullcontext():
            batches = iter(loader)
        for batch in batches:
            self._handed += self.batch // self.parts
            yield batch

    def used(self, batches: int | None = None) -> int:
        """Says that the training has consumed so many micro-batches, or all that were handed out. Returns their
        samples, over all ranks. A framework that takes batches ahead must say how many."""
        fresh = self._handed - self.consumed if batches is None else batches * self.batch // self.parts
        self.consumed += fresh
        return fresh

    def skip(self, batches: int) -> None:
        """Leaves whole batches out, as those that a loss could not be trusted on."""
        self.consumed += batches * self.batch
        self._handed = self.consumed

    def state_dict(self) -> dict[str, Any]:
        """Where the training is, as JSON values."""
        length = self.order.length if self.order else None
        return {"consumed": self.consumed, "seed": self.seed, "length": length, "batch": self.batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there. The batch and the world may differ; the data and the seed may not. Raises DataError."""
        consumed = state.get("consumed")
        if not isinstance(consumed, int) or consumed < 0:
            raise DataError(
                f"consumed: {consumed!r} · the checkpoint does not say where in the data it was · use another"
            )
        for name, now in (("seed", self.seed), ("length", self.order.length if self.order else None)):
            if state.get(name) != now:
                raise DataError(
                    f"data {name}: {now}, but the checkpoint's was {state.get(name)} · its position means nothing in "
                    "another order · train on the data and seed it began with, or begin a new run"
                )
        self.consumed = self._handed = consumed

    def _loader(self, start: int, end: int | None) -> "DataLoader[Any]":
        # A generator of its own: making the iterator draws from it, and the training's random numbers stay untouched.
        generator = torch.Generator().manual_seed(seed_of(self.seed, start))
        options: dict[str, Any] = {
            "num_workers": self.workers,
            "collate_fn": self._collate,
            "generator": generator,
            **self._options,
        }
        if self.order is None:
            stream = _Stream(self.source, self.seed, self.slice, start, end)
            return DataLoader(stream, batch_size=self.slice.micro, **options)
        keys = _Keys(self.order, self.slice, start, end)
        return DataLoader(_Seeded(self.source, self.seed), batch_sampler=keys, **options)


def adopt(
    loader: Any, *, seed: int = 0, place: Place | None = None, batch: BatchConfig | None = None, **options: Any
) -> Batches:
    """Batches from a DataLoader as people have it: its dataset, batch size (a rank's), shuffling, workers and options.

    With `batch`, the loader's batch size is that of a micro-batch. Raises DataError where it is another, or where the
    loader's order is its own, so that no position could be found in it again.
    """
    if isinstance(loader, Batches):
        return loader
    if not isinstance(loader, DataLoader):
        raise DataError(f"{type(loader).__name__} · data is a DataLoader or runtime.data.Batches · make one of it")
    sampler = getattr(loader, "sampler", None)
    sequential = isinstance(loader.dataset, Sequential)
    if isinstance(loader.dataset, IterableDataset) and not sequential:
        raise DataError(
            f"{type(loader.dataset).__name__} · an iterable dataset cannot say where a run was in it · "
            "give it begin(position) (runtime.data.Sequential)"
        )
    if loader.batch_size is None or not (
        sequential or isinstance(sampler, RandomSampler | SequentialSampler | DistributedSampler)
    ):
        which = type(sampler if loader.batch_size else loader.batch_sampler).__name__
        raise DataError(
            f"{which} · a sampler of one's own decides the order, and a run could not find its place in it again · "
            "use runtime.data.Batches, or a dataset that is in the order wanted with shuffle=False"
        )
    if batch is not None and loader.batch_size != batch.micro:
        raise DataError(
            f"a DataLoader of batch_size {loader.batch_size}, but batch.micro is {batch.micro} · each is the samples "
            "that a rank takes at a time · make them equal"
        )
    kept = {name: getattr(loader, name) for name in COPIED if getattr(loader, name, None)}
    return Batches(
        loader.dataset,
        batch or loader.batch_size * (place.world if place else 1),
        seed=seed,
        shuffle=isinstance(sampler, RandomSampler) or getattr(sampler, "shuffle", False) is True,
        place=place,
        workers=loader.num_workers,
        collate=loader.collate_fn,
        **kept,
        **options,
    )


Key = tuple[int, int]
"""Position in the order, and index into the dataset."""


class _Keys:
    """A batch sampler: this rank's keys, micro-batch by micro-batch."""

    def __init__(self, order: Order, slice: Slice, start: int, end: int | None) -> None:
        self.order, self.slice, self.start, self.end = order, slice, start, end

    def __iter__(self) -> Iterator[list[Key]]:
        size = self.slice.micro
        steps = itertools.count(self.start, self.slice.batch)
        for step in itertools.takewhile(lambda at: self.end is None or at < self.end, steps):
            for first in self.slice.starts(step):
                yield list(zip(range(first, first + size), self.order.at(first, size).tolist(), strict=True))


class _Seeded(Dataset[Any]):
    """A dataset by keys, in which what is random about a sample depends on its position alone."""

    def __init__(self, source: Any, seed: int) -> None:
        self.source, self.seed = source, seed

    def __getitems__(self, keys: Sequence[Key]) -> list[Any]:
        with _own_random():
            if hasattr(self.source, "__getitems__"):  # datasets that read many at once; seeded as one
                _draw_from(seed_of(self.seed, keys[0][0]))
                return list(self.source.__getitems__([index for _, index in keys]))
            found = []
            for position, index in keys:
                _draw_from(seed_of(self.seed, position))
                found.append(self.source[index])
            return found


class _Stream(IterableDataset[Any]):
    """A rank's samples of data that is read in order. Each worker reads all, and keeps every n-th micro-batch for its
    own."""

    def __init__(self, source: Sequential, seed: int, slice: Slice, start: int, end: int | None) -> None:
        self.source, self.seed, self.slice, self.start, self.end = source, seed, slice, start, end

    def __iter__(self) -> Iterator[Any]:
        own = worker()
        number, of = (own.id, own.num_workers) if own else (0, 1)
        samples = self.source.begin(self.start)
        batch, size = self.slice.batch, self.slice.micro
        turn = 0
        for position in itertools.count(self.start, batch):
            if self.end is not None and position >= self.end:
                return
            with _own_random():
                _draw_from(seed_of(self.seed, position))
                # Every rank reads the whole batch: so all end together where the data ends in the middle of one.
                whole = list(itertools.islice(samples, batch))
            if len(whole) < batch:
                return
            for first in self.slice.starts(0):
                if turn % of == number:
                    yield from whole[first : first + size]
                turn += 1


def _draw_from(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)  # of the CPU alone: torch.manual_seed would reach the GPU too


@contextmanager
def _own_random() -> Iterator[None]:
    """Gives the training back its random numbers, where samples are prepared in its own process."""
    if worker() is not None:
        yield
        return
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
