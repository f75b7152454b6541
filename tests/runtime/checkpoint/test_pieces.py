"""The shares of the ranks cover every array once, and saved boxes fill a wanted one or say that they do not."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.checkpoint.pieces import Box, GapError, Held, balanced, filling, overlap, run, shares, split, whole, within

SHAPES = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@given(SHAPES, st.integers(1, 8), st.integers(1, 200))
def test_the_parts_of_a_box_cover_it_once_within_the_size_and_each_in_one_run(shape, item_bytes, most):
    counts = numpy.zeros(shape, dtype=int)
    order = numpy.arange(math.prod(shape)).reshape(shape)
    for part in split(whole(shape), item_bytes, most):
        assert part.elements == 1 or part.elements * item_bytes <= most
        counts[within(part, whole(shape))] += 1
        flat = order[within(part, whole(shape))].ravel()
        assert (flat == numpy.arange(flat[0], flat[0] + flat.size)).all()
    assert (counts == 1).all()


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_shares_are_within_a_third_of_the_best_possible_load(sizes, bins):
    loads = [0] * bins
    for size, into in zip(sizes, balanced(sizes, bins), strict=True):
        loads[into] += size
    assert max(loads) <= sum(sizes) / bins + max(sizes, default=0)


@given(
    st.lists(SHAPES, min_size=1, max_size=6),
    st.sampled_from([(1, 1), (2, 1), (4, 2), (4, 4), (6, 2), (5, 2)]),
    st.booleans(),
)
def test_replicas_write_each_element_once_to_the_shared_store_and_once_on_each_node(shapes, worlds, equal):
    world, local = worlds
    held = [Held(f"t{i}", whole(shape), 4, tuple(range(world)), equal) for i, shape in enumerate(shapes)]
    shared = {each.name: numpy.zeros(each.box.extent, dtype=int) for each in held}
    nodes = [{each.name: numpy.zeros(each.box.extent, dtype=int) for each in held} for _ in range(-(-world // local))]
    for rank in range(world):
        for share in shares(held, rank, local, 16):
            nodes[rank // local][share.held.name][within(share.box, share.held.box)] += 1
            shared[share.held.name][within(share.box, share.held.box)] += share.shared
    for stored in (shared, *nodes):
        assert all((counts == 1).all() for counts in stored.values())


def test_what_differs_between_replicas_is_written_whole_by_the_first():
    held = [Held("running_mean", whole((64,)), 4, (0, 1, 2, 3), equal=False)]
    assert [bool(shares(held, rank, 4, 16)) for rank in range(4)] == [True, False, False, False]


def test_a_rank_that_does_not_hold_a_box_is_not_asked_to_write_it():
    with pytest.raises(ValueError, match="rank 2 is not among the holders of w"):
        shares([Held("w", whole((2,)), 4, (0, 1))], 2, 4, 16)


def cut(shape: tuple[int, ...], axis: int, parts: int) -> list[Box]:
    """An array in `parts` along an axis, as torch.chunk does it."""
    step = -(-shape[axis] // parts)
    found = []
    for start in range(0, shape[axis], max(step, 1)):
        length = min(step, shape[axis] - start)
        found.append(
            Box(
                tuple(start if at == axis else 0 for at in range(len(shape))),
                tuple(length if at == axis else each for at, each in enumerate(shape)),
            )
        )
    return found


@given(st.data())
def test_an_array_saved_in_one_cut_is_read_in_any_other(data):
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
    axes = st.integers(0, len(shape) - 1)
    saved = cut(shape, data.draw(axes), data.draw(st.integers(1, 5)))
    values = numpy.arange(math.prod(shape)).reshape(shape)
    stored = [values[within(box, whole(shape))] for box in saved]
    for wanted in cut(shape, data.draw(axes), data.draw(st.integers(1, 5))):
        into = numpy.full(wanted.extent, -1)
        for index, part in filling(wanted, saved):
            into[within(part, wanted)] = stored[index][within(part, saved[index])]
        assert (into == values[within(wanted, whole(shape))]).all()


def test_a_box_that_replicas_saved_twice_is_taken_once():
    assert filling(whole((4,)), [whole((4,)), whole((4,))]) == [(0, whole((4,)))]
    assert filling(whole(()), [whole(()), whole(())]) == [(0, whole(()))]


@pytest.mark.parametrize(
    "saved",
    [
        [],
        [Box((0,), (3,))],
        [Box((0,), (2,)), Box((1,), (2,))],  # as many elements as are wanted, but one twice and one never
        [Box((0,), (4,)), Box((0,), (1,))],
    ],
)
def test_a_gap_or_an_overlap_is_an_error(saved):
    with pytest.raises(GapError):
        filling(whole((4,)), saved)


@given(st.data())
def test_a_run_is_found_exactly_where_the_elements_follow_one_another(data):
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4).map(tuple))
    offset = tuple(data.draw(st.integers(0, each - 1)) for each in shape)
    box = Box(offset, tuple(data.draw(st.integers(1, full - at)) for full, at in zip(shape, offset, strict=True)))
    flat = numpy.arange(math.prod(shape)).reshape(shape)[within(box, whole(shape))].ravel()
    follows = bool((flat == numpy.arange(flat[0], flat[0] + flat.size)).all())
    assert run(box, whole(shape)) == (flat[0] if follows else None)


def test_boxes_apart_have_nothing_in_common():
    assert overlap(Box((0, 0), (2, 2)), Box((2, 0), (2, 2))) is None
    assert overlap(Box((0, 0), (3, 2)), Box((2, 1), (2, 2))) == Box((2, 1), (1, 1))
