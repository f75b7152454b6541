"""Ids and the choice of steps need no communication, and differ wherever they must."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.place import Place
from runtime.telemetry.record import Span, Step
from runtime.telemetry.traces import chosen, span_id, spans, trace_id

TEXTS = st.text(max_size=20)
STEPS = st.integers(0, 10**9)


@given(TEXTS, TEXTS, STEPS, st.integers(2, 64))
def test_all_ranks_of_a_step_have_one_trace_and_no_span_twice(run: str, attempt: str, number: int, world: int) -> None:
    step = Step(
        number, 0, 10, {}, (Span("backward", 1, 5), Span("communication", 2, 3, inside=0), Span("backward", 6, 7))
    )
    sent = [
        each
        for rank in range(world)
        for each in spans(step, Place(rank=rank, world=world, node="n", attempt=attempt), run)
    ]
    ids = [own for _, own, *_ in sent]
    assert len(set(ids)) == len(ids) == 1 + 4 * world
    (root,) = [own for _, own, around, *_ in sent if around is None]
    assert root == span_id(run, attempt, number)
    assert sum(around == root for _, _, around, *_ in sent) == world
    assert all(around is None or around in ids for _, _, around, *_ in sent)
    assert all(0 < own < 1 << 64 for own in ids)
    assert 0 < trace_id(run, attempt, number) < 1 << 128


@given(st.lists(st.tuples(TEXTS, TEXTS, STEPS), min_size=2, max_size=20, unique=True))
def test_another_run_attempt_or_step_is_another_trace(which: list[tuple[str, str, int]]) -> None:
    which += [(run + "x", attempt, step) for run, attempt, step in which[:1]]
    which += [(run, attempt + "x", step) for run, attempt, step in which[:1]]
    which += [(run, attempt, step + 1) for run, attempt, step in which[:1]]
    which = list(set(which))
    assert len({trace_id(*each) for each in which}) == len(which)
    assert len({span_id(*each) for each in which}) == len(which)
    assert len({span_id(*each, 0) for each in which}) == len(which)


@given(TEXTS, TEXTS, STEPS, st.floats(0, 1), st.floats(0, 1))
def test_a_step_in_a_small_sample_is_in_a_larger_one(run: str, attempt: str, step: int, one: float, two: float) -> None:
    less, more = sorted((one, two))
    assert chosen(run, attempt, step, more) or not chosen(run, attempt, step, less)
    assert chosen(run, attempt, step, 1.0)
    assert not chosen(run, attempt, step, 0.0)


def test_a_sample_is_about_as_large_as_it_says() -> None:
    counted = sum(chosen("run", "0", step, 0.05) for step in range(20_000))
    assert 800 < counted < 1200
