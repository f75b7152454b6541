"""State comes back as it was, and what is not data is refused with its place."""

import json
import math
import random

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.checkpoint import rng
from runtime.checkpoint.values import ValueKindError, decode, encode

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8)
)
KEYS = st.one_of(st.text(max_size=4), st.integers(), st.booleans())
STATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=20,
)


@given(STATES)
def test_data_comes_back_as_it_was_through_json(state):
    tensors: dict = {}
    told = json.loads(json.dumps(encode(state, "x", tensors), allow_nan=False))
    found = decode(told, tensors.__getitem__)
    assert found == state
    assert repr(found) == repr(state)  # tuples stay tuples, True stays True


def test_what_json_cannot_say_comes_back():
    state = {"inf": math.inf, "low": -math.inf, "$mark": 1, "zero": -0.0}
    told = json.loads(json.dumps(encode(state, "x", {}), allow_nan=False))
    assert repr(decode(told, {}.__getitem__)) == repr(state)
    assert math.isnan(decode(encode(math.nan, "x", {}), {}.__getitem__))


def test_tensors_and_arrays_are_kept_by_name():
    tensors: dict = {}
    state = {"a": torch.arange(3), "b": [numpy.arange(4.0)], "c": numpy.int64(5)}
    found = decode(encode(state, "s", tensors), tensors.__getitem__)
    assert sorted(tensors) == ["s/a", "s/b/0"]
    assert torch.equal(found["a"], state["a"])
    assert isinstance(found["b"][0], numpy.ndarray)
    assert found["c"] == 5


@pytest.mark.parametrize("odd", [object(), lambda: 0, {1, 2}, numpy.array([object()]), torch.nn.Linear(1, 1)])
def test_what_is_not_data_is_refused_with_its_place(odd):
    with pytest.raises(ValueKindError, match=r"scheduler/lambdas/1"):
        encode({"lambdas": [0, odd]}, "scheduler", {})


def test_a_state_that_holds_itself_is_refused():
    state: list = []
    state.append(state)
    with pytest.raises(ValueKindError, match="nested deeper than 64"):
        encode(state, "x", {})


@pytest.mark.parametrize("told", [{"$call": "os.system"}, {"$tuple": [1], "b": 2}, {"$dict": [[{"a": 1}, 2]]}])
def test_a_mark_that_is_not_known_is_refused(told):
    with pytest.raises(ValueError, match=r"mark|key"):
        decode(told, {}.__getitem__)


def draws() -> list[float]:
    return [random.random(), float(numpy.random.rand()), numpy.random.randn(), torch.rand(1).item()]  # noqa: S311


def test_every_generator_goes_on_where_it_was():
    numpy.random.randn()  # leaves a second normal number behind, which is part of the state
    tensors: dict = {}
    told = json.loads(json.dumps(encode(rng.captured(), "r", tensors)))
    first = draws()
    rng.install(decode(told, tensors.__getitem__))
    assert draws() == first


def test_derived_states_differ_by_rank_and_are_the_same_again():
    state = torch.get_rng_state()
    found = []
    for rank in (4, 5, 4):
        rng.derive(state, rank)
        found.append(draws())
    assert found[0] == found[2] != found[1]
