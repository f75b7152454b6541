"""Batches: what the training consumed is what counts, whatever workers prepared and however many ranks there are."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler, TensorDataset

from runtime.data import Batches, adopt
from runtime.order import DataError
from runtime.place import Place

LENGTH = 50


class Noisy:
    """A dataset that draws from every source of random numbers, as one that augments does."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random() + np.random.random() + torch.rand(()).item()  # noqa: S311


class Counting:
    """Data that is read in order."""

    def begin(self, position: int) -> Iterator[int]:
        return itertools.count(position)


class Ending:
    def begin(self, position: int) -> Iterator[int]:
        return iter(range(position, 23))


def samples(batches: Batches, steps: int) -> list[Any]:
    """Takes and uses so many batches; their samples as plain values."""
    found: list[Any] = []
    for batch in itertools.islice(batches.until(None), steps):
        found += (
            list(zip(*(each.tolist() for each in batch), strict=True)) if isinstance(batch, list) else batch.tolist()
        )
        batches.used()
    return found


def at(rank: int, world: int) -> Place:
    return Place(rank=rank, world=world)


@pytest.mark.parametrize("source", [Noisy(), Counting()], ids=["indexed", "sequential"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_stopped_goes_on_at_the_next_sample_with_the_same_augmentation(
    source: Any, workers: int
) -> None:
    """Workers are ahead by several batches when it stops: those do not count."""
    whole = samples(Batches(source, 4, seed=3), 40)
    first = Batches(source, 4, seed=3, workers=workers)
    seen = samples(first, 17)
    second = Batches(source, 4, seed=3, workers=workers)
    second.load_state_dict(first.state_dict())
    assert seen + samples(second, 23) == whole


@pytest.mark.parametrize("source", [Noisy(), Counting()], ids=["indexed", "sequential"])
def test_four_ranks_then_two_then_four_see_one_order(source: Any) -> None:
    whole = samples(Batches(source, 8, seed=3), 12)
    state = Batches(source, 8, seed=3).state_dict()
    seen: list[Any] = []
    for world in (4, 2, 4):
        ranks = [Batches(source, 8, seed=3, place=at(rank, world)) for rank in range(world)]
        for each in ranks:
            each.load_state_dict(state)
        for _ in range(4):
            seen += [sample for each in ranks for sample in samples(each, 1)]
        (state,) = {str(each.state_dict()): each.state_dict() for each in ranks}.values()
    assert seen == whole


def test_a_batch_that_was_taken_but_not_used_comes_again() -> None:
    batches = Batches(Noisy(), 4, seed=1)
    taken = next(iter(batches))
    assert torch.equal(next(iter(batches))[0], taken[0])
    assert batches.consumed == 0


def test_several_batches_of_one_step_count_together() -> None:
    batches = Batches(Noisy(), 4)
    stream = iter(batches)
    next(stream), next(stream), next(stream)
    assert batches.used() == 12
    assert batches.used() == 0


def test_batches_are_full_and_each_sample_comes_once_an_epoch() -> None:
    batches = Batches(Noisy(), 16, seed=2)
    seen = []
    for length in (4, 3, 3, 3, 3):  # 50 samples: 3 1/8 batches
        assert len(batches) == length
        for ids, _ in batches:
            assert len(ids) == 16
            seen += ids.tolist()
            batches.used()
    for epoch in range(5):
        assert sorted(seen[epoch * LENGTH : (epoch + 1) * LENGTH]) == list(range(LENGTH))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_data_that_ends_in_the_middle_of_a_batch_ends_on_all_ranks_at_once(workers: int) -> None:
    found = [[each.tolist() for each in Batches(Ending(), 8, place=at(rank, 2), workers=workers)] for rank in range(2)]
    assert found == [[[0, 1, 2, 3], [8, 9, 10, 11]], [[4, 5, 6, 7], [12, 13, 14, 15]]]


def test_the_trainings_random_numbers_are_left_alone() -> None:
    def drawn(with_data: bool) -> list[float]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if with_data:
            samples(Batches(Noisy(), 4), 3)
        return [random.random(), np.random.random(), torch.rand(()).item()]  # noqa: S311

    assert drawn(True) == drawn(False)


def test_what_was_skipped_is_not_seen_again() -> None:
    whole = samples(Batches(Noisy(), 4), 6)
    batches = Batches(Noisy(), 4)
    seen = samples(batches, 2)
    batches.skip(1)
    assert seen + samples(batches, 3) == whole[:8] + whole[12:]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Batches(Noisy(), 4, seed=2), "data seed: 2, but the checkpoint's was 1"),
        (Batches(range(51), 4, seed=1), "data length: 51, but the checkpoint's was 50"),
        (Batches(Counting(), 4, seed=1), "data length: None, but the checkpoint's was 50"),
    ],
)
def test_a_position_in_other_data_is_refused_and_changes_nothing(now: Batches, said: str) -> None:
    before = Batches(Noisy(), 4, seed=1)
    samples(before, 3)
    with pytest.raises(DataError, match=said):
        now.load_state_dict(before.state_dict())
    assert now.consumed == 0


@pytest.mark.parametrize("wrong", [{}, {"consumed": -1}, {"consumed": "9"}, {"consumed": None}])
def test_a_state_that_says_no_position_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="does not say where in the data"):
        Batches(Noisy(), 4).load_state_dict(wrong)


def test_a_dataloader_is_taken_as_people_have_it() -> None:
    data = TensorDataset(torch.arange(64))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2, prefetch_factor=3, collate_fn=lambda x: len(x))
    found = adopt(loader, seed=5, place=at(1, 2))
    assert (found.batch, found.slice.size, found.workers) == (8, 4, 2)
    assert found.order is not None
    assert found.order.shuffle
    assert list(itertools.islice(found.until(None), 2)) == [4, 4]
    unshuffled = adopt(DataLoader(data, batch_size=4)).order
    assert unshuffled is not None
    assert not unshuffled.shuffle


class Unplaced(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


class Own(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (DataLoader(Unplaced()), "Unplaced · an iterable dataset cannot say where"),
        (DataLoader(range(9), sampler=Own()), "Own · a sampler of one's own"),  # type: ignore[arg-type]
        (
            DataLoader(range(9), batch_sampler=BatchSampler(RandomSampler(range(9)), 2, False)),  # type: ignore[arg-type]
            "BatchSampler · a sampler of one's own",
        ),
        ([1, 2], "list · data is a DataLoader"),
    ],
)
def test_a_loader_in_which_no_place_can_be_found_again_is_refused(loader: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        adopt(loader)


def test_what_has_neither_index_nor_beginning_is_refused() -> None:
    with pytest.raises(DataError, match=r"neither len and \[index\] nor begin"):
        Batches(iter([1]), 2)
    with pytest.raises(DataError, match="sampler · batches are made from"):
        Batches(range(9), 2, sampler=None)
