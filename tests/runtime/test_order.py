"""The order of samples: each once an epoch, the same at any world size, today and later."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.order import DataError, Order, Slice, seed_of

LENGTHS = st.integers(1, 3000)
SEEDS = st.integers(0, 2**63)


@given(length=LENGTHS, seed=SEEDS, epoch=st.integers(0, 2**20))
def test_every_epoch_holds_every_sample_once(length: int, seed: int, epoch: int) -> None:
    found = Order(length, seed).at(epoch * length, length)
    assert sorted(found.tolist()) == list(range(length))


@given(length=LENGTHS, seed=SEEDS, cuts=st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_the_order_does_not_depend_on_how_it_is_asked_for(length: int, seed: int, cuts: list[int]) -> None:
    order, position, parts = Order(length, seed), 0, []
    for cut in cuts:
        parts += order.at(position, cut).tolist()
        position += cut
    assert parts == order.at(0, position).tolist()


@given(length=LENGTHS, seed=SEEDS, start=st.integers(0, 10**12), size=st.integers(1, 8))
def test_a_batch_is_the_same_at_any_world_size(length: int, seed: int, start: int, size: int) -> None:
    order, batch = Order(length, seed), size * 12
    whole = order.at(start, batch).tolist()
    for world in (1, 2, 3, 4, 6, 12):
        slices = [Slice(batch, rank, world) for rank in range(world)]
        assert [index for each in slices for index in order.at(each.start(start), each.size).tolist()] == whole


def test_epochs_and_seeds_differ() -> None:
    found = {tuple(Order(100, seed).at(epoch * 100, 100).tolist()) for seed in range(10) for epoch in range(10)}
    assert len(found) == 100


def test_a_shuffled_order_is_even() -> None:
    """Where a sample lands, over many seeds: chi-squared below the 99.9th percentile of 63 degrees of freedom, 104."""
    landed = np.array([[int(np.flatnonzero(Order(64, seed).at(0, 64) == 7)[0])] for seed in range(6400)])
    counts = np.bincount(landed.ravel(), minlength=64)
    assert ((counts - 100) ** 2 / 100).sum() < 104


def test_an_order_stays_what_it_was_when_checkpoints_were_written() -> None:
    """Not to be mended: a changed order makes the positions in old checkpoints mean other samples."""
    assert Order(10, 7).at(0, 20).tolist() == [9, 6, 1, 0, 7, 8, 3, 5, 2, 4, 8, 2, 7, 3, 5, 1, 6, 4, 9, 0]
    assert Order(10**12, 7).at(10**15, 3).tolist() == [411714691355, 670948109934, 868330274928]
    assert seed_of(7, 123) == 8214784841689264003


def test_unshuffled_is_the_datasets_own_order() -> None:
    assert Order(4, shuffle=False).at(2, 6).tolist() == [2, 3, 0, 1, 2, 3]


def test_a_batch_that_does_not_divide_says_which_would() -> None:
    with pytest.raises(DataError, match=r"a batch of 30 does not divide over 4 ranks .* take 28 or 32"):
        Slice(30, 0, 4)
    with pytest.raises(DataError, match="take 4, another"):
        Slice(2, 0, 4)


@pytest.mark.parametrize("length", [0, -1, 2**63])
def test_a_length_that_is_none_is_refused(length: int) -> None:
    with pytest.raises(DataError, match="an order needs"):
        Order(length)


def test_the_order_needs_no_torch() -> None:
    """A data pipeline of one's own, outside a training, may ask for it."""
    code = "import sys, runtime.order; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
