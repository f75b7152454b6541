"""The language of expectations: closed, strict about types, and never a pass where it cannot be told."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sample_measurements import EXAMPLES
from sample_nodes import CATALOGUE, expected, node_for

from policies.answer import PREDICATES, Answer, Holding, answer
from policies.canonical import digest
from policies.control import Control
from policies.expectation import Expectation
from policies.wording import LONGEST_REASON, bounded, one_line, words

SPEC: dict[str, Any] = {"gpu.count": 8, "names": ["a", "b"], "limit": 5, "wrong": "many", "none": 0} | {
    "nobody": [],
    "no_keys": {},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner, max_size=9),
    max_leaves=20,
)


def asked(expect: dict[str, Any], value: Any) -> Answer:
    return answer(Expectation.model_validate(expect), value, SPEC)


@pytest.mark.parametrize(
    ("expect", "holds", "breaks", "malformed"),
    [
        ({"equals": 0}, [0, 0.0], [1, -1], [False, "0", None, [], {}, float("nan")]),
        ({"equals": True}, [True], [False], [1, "true", None]),
        ({"equals": "drop"}, ["drop"], ["accept", ""], [None, 0, ["drop"]]),
        ({"at_most": 5}, [5, 4.9, -1, -(2.0**60)], [5.1, 6, 2.0**60], ["5", None, True, float("nan"), -(10**400)]),
        ({"at_least": 5}, [5, 6, 2.0**60], [4], ["6", None, True, float("inf"), float("-inf"), 10**400]),
        ({"at_most": {"spec": "limit"}}, [5], [6], [None]),
        ({"at_least": 1, "at_most": 5}, [1, 5], [0, 6], ["1"]),
        ({"one_of": ["a", "b"]}, ["a"], ["c", ""], [1, None]),
        ({"matches": "[0-9]+"}, ["12"], ["12x", "x12", "12\n", ""], [12, None, "1" * 10_001]),
        ({"empty": True}, [[], {}], [[0], {"a": 1}], [None, "", 0, False]),
        ({"count": {"equals": 2}}, [[1, 2], {"a": 1, "b": 2}], [[], [1]], ["ab", None, 2]),
        ({"subset_of": ["a", "b"]}, [[], ["a"], ["b", "a"]], [["c"], ["a", "c"]], [None, "a", [1.5], [None], {"a": 1}]),
        ({"superset_of": ["a"]}, [["a"], ["b", "a"]], [[], ["b"]], [None, "a", {"a": 1}]),
        ({"superset_of": {"a": 1}}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": 2}, {"a": None}], [["a"], {"a": "1"}]),
        ({"superset_of": {"a": {"b": 1}}}, [{"a": {"b": 1, "c": 2}}], [{"a": {"b": 2}}, {"a": {}}, {}], [{"a": [1]}]),
        ({"every": {"equals": 0}, "of": 2}, [[0, 0], {"x": 0, "y": 0}], [[], [0], [0] * 3, [0, 1]], [None, [0, None]]),
        ({"every": {"equals": 0}, "of": {"spec": "names"}}, [{"a": 0, "b": 0}], [{}, {"a": 0}, {"c": 0}], [[0, 0]]),
        ({"every": {"equals": 0}, "of": "some"}, [[0], {"a": 0}], [[], {}, [1]], [None]),
        ({"every": {"equals": 0}, "of": "any"}, [[], {}, [0]], [[1]], [None, ""]),
        ({"fields": {"a": {"equals": 1}}}, [{"a": 1, "b": 0}], [{"a": 2}], [{}, {"b": 1}, [1], None, {"a": None}]),
        ({"fields": {"a": {"equals": {"field": "b"}}}}, [{"a": 1, "b": 1}], [{"a": 1, "b": 2}], [{"a": 1}]),
        ({"any_of": [{"equals": "unlimited"}, {"at_least": 9}]}, ["unlimited", 9], ["few", 8], [None, [], True]),
        ({"equals": {"spec": "absent"}}, [], [], [0, "", None]),
        ({"at_most": {"spec": "wrong"}}, [], [], [0, "many"]),
        ({"every": {"equals": 0}, "of": {"spec": "none"}}, [], [], [[], {}, [0]]),
        ({"every": {"equals": 0}, "of": {"spec": "nobody"}}, [], [], [[], {}]),
        ({"every": {"equals": 0}, "of": {"spec": "wrong"}}, [], [], [[], [0]]),
        ({"superset_of": {"spec": "gpu.count"}}, [], [], [[], {}]),
        ({"superset_of": {"spec": "nobody"}}, [], [], [[], ["a"], {}]),
        ({"superset_of": {"spec": "no_keys"}}, [], [], [[], {}, {"a": 1}]),
        ({"one_of": {"spec": "nobody"}}, [], [], ["a", None, []]),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else None,
)  # fmt: skip
def test_each_predicate_tells_right_from_wrong_and_wrong_from_unknown(
    expect: dict[str, Any], holds: list[Any], breaks: list[Any], malformed: list[Any]
) -> None:
    for wanted, values in (
        (Holding.HOLDS, holds),
        (Holding.BROKEN, breaks),
        (Holding.MALFORMED, malformed),
    ):
        for value in values:
            assert asked(expect, value).holding is wanted, (expect, value, asked(expect, value))


def test_every_predicate_of_the_language_is_judged_and_no_other() -> None:
    assert PREDICATES.keys() == Expectation.model_fields.keys() - {"of"}


def test_eight_gpus_are_expected_and_zero_seven_or_nine_answers_do_not_pass() -> None:
    expect = {"every": {"equals": 0}, "of": {"spec": "gpu.count"}}
    assert asked(expect, [0] * 8).holding is Holding.HOLDS
    for count in (0, 7, 9):
        told = asked(expect, [0] * count)
        assert told.holding is Holding.BROKEN
        assert told.why == f"{count} answered, 8 expected"


def test_what_cannot_be_told_outweighs_what_is_broken() -> None:
    """Else a waiver for the one broken GPU would cover the one that says nothing."""
    assert asked({"every": {"equals": 0}, "of": 2}, {"gpu-0": 3, "gpu-1": None}).holding is Holding.MALFORMED


def test_what_broke_is_named_with_its_value() -> None:
    told = asked({"every": {"equals": 0}, "of": 8}, {f"gpu-{i}": 2 * (i == 3) for i in range(8)})
    assert told.why == "gpu-3: 2, expected 0"
    assert told.broke == {"gpu-3": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"equal": 0},
        {"at_most": True},
        {"at_most": "5"},
        {"at_most": float("nan")},
        {"at_most": None},
        {"one_of": []},
        {"one_of": [1.5]},
        {"matches": "("},
        {"empty": False},
        {"every": {"equals": 0}},
        {"of": 8},
        {"every": {"equals": 0}, "of": 0},
        {"every": {"equals": 0}, "of": "all"},
        {"every": {}, "of": 8},
        {"fields": {}},
        {"superset_of": {}},
        {"any_of": [{"equals": 0}]},
        {"equals": {"spec": 5}},
        {"equals": {"spec": "a", "field": "b"}},
    ],
    ids=json.dumps,
)
def test_an_expectation_that_cannot_fail_or_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Expectation.model_validate(wrong)


def truly(expect: dict[str, Any], value: Any, spec: dict[str, Any], fields: dict[str, Any]) -> bool:
    """The language again, as plainly as can be: whether a value meets an expectation, for certain."""

    def known(wanted: Any) -> Any:
        if isinstance(wanted, dict) and wanted.keys() == {"spec"}:
            return spec[wanted["spec"]]
        if isinstance(wanted, dict) and wanted.keys() == {"field"}:
            return fields.get(wanted["field"])
        return wanted

    def plain(each: Any) -> str:
        return json.dumps(float(each) if isinstance(each, int) and not isinstance(each, bool) else each, sort_keys=True)

    def number(each: Any) -> bool:
        if isinstance(each, float):
            return math.isfinite(each)
        return isinstance(each, int) and not isinstance(each, bool) and abs(each) <= 2**53

    def names(each: Any) -> bool:
        return isinstance(each, list) and all(isinstance(one, str | int) for one in each)

    def holds(kind: str, wanted: Any) -> bool:
        match kind:
            case "equals":
                return plain(known(wanted)) == plain(value)
            case "at_most":
                return number(value) and value <= known(wanted)
            case "at_least":
                return number(value) and value >= known(wanted)
            case "one_of":
                return any(plain(each) == plain(value) for each in known(wanted))
            case "matches":
                return isinstance(value, str) and re.fullmatch(wanted, value) is not None
            case "empty":
                return value == [] or value == {}
            case "subset_of":
                return names(value) and {plain(each) for each in value} <= set(map(plain, known(wanted)))
            case "superset_of" if isinstance(known(wanted), dict):
                return isinstance(value, dict) and all(
                    truly({"superset_of" if isinstance(each, dict) else "equals": each}, value.get(key), spec, {})
                    for key, each in known(wanted).items()
                )
            case "superset_of":
                return names(value) and {plain(each) for each in value} >= set(map(plain, known(wanted)))
            case "every":
                size = known(expect["of"])
                inner = list(value.values()) if isinstance(value, dict) else value
                if not isinstance(inner, list) or not all(truly(wanted, each, spec, {}) for each in inner):
                    return False
                if size in ("some", "any"):
                    return size == "any" or bool(inner)
                if isinstance(size, int):
                    return len(inner) == size
                return isinstance(value, dict) and value.keys() == set(size)
            case "fields":
                return isinstance(value, dict) and all(
                    key in value and truly(each, value[key], spec, value) for key, each in wanted.items()
                )
            case "any_of":
                return any(truly(each, value, spec, fields) for each in wanted)
            case _:
                return kind == "of"

    return all(holds(kind, wanted) for kind, wanted in expect.items())


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[Control, Any, dict[str, Any]]:
    """A control with a right measurement of which something, anywhere in it, is replaced by arbitrary JSON."""
    control = draw(st.sampled_from(CATALOGUE.controls))
    spec = expected(node_for(control))
    value = EXAMPLES[control.id].passing(spec)
    return control, draw(mutations(value)), spec


def mutations(value: Any) -> st.SearchStrategy[Any]:
    options = [JSON, st.just(value)]
    if isinstance(value, dict) and value:
        options += [
            st.sampled_from(sorted(value)).flatmap(
                lambda key: mutations(value[key]).map(lambda changed: {**value, key: changed})
            ),
            st.sampled_from(sorted(value)).map(lambda key: {each: value[each] for each in value if each != key}),
            st.text(max_size=9).flatmap(lambda key: JSON.map(lambda more: {**value, key: more})),
        ]
    if isinstance(value, list):
        options.append(JSON.map(lambda more: [*value, more]))
    return st.one_of(options)


@settings(max_examples=200)
@given(nearly_right())
def test_an_answer_holds_exactly_where_the_expectation_truly_does(case: tuple[Control, Any, dict[str, Any]]) -> None:
    control, value, spec = case
    told = answer(control.expect, value, spec)
    expect = json.loads(control.expect.model_dump_json(exclude_unset=True))
    assert (told.holding is Holding.HOLDS) == truly(expect, value, spec, {}), (control.id, value, told)
    json.dumps(told.broke, allow_nan=False)


@given(JSON)
@example({"\x1b[2J\n": {"\ud800": 10**30}})
def test_whatever_a_node_sends_can_be_shown_and_signed(value: Any) -> None:
    told = asked({"every": {"equals": "never"}, "of": {"spec": "gpu.count"}}, value)
    assert told.holding is not Holding.HOLDS
    digest(bounded(value))
    digest(told.broke)
    line = one_line(told.why)
    assert line.isprintable()
    assert len(line) <= LONGEST_REASON + 1


def test_a_value_nested_without_end_is_judged_all_the_same() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    assert asked({"every": {"equals": 0}, "of": 1}, deep).holding is Holding.MALFORMED
    assert asked({"equals": [0]}, deep).holding is Holding.BROKEN


@pytest.mark.parametrize("control", CATALOGUE, ids=lambda control: control.id)
def test_every_expectation_is_said_in_words_without_references_left(control: Control) -> None:
    said = words(control.expect, expected(node_for(control)))
    assert said
    assert "the spec's" not in said
