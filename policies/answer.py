"""Whether a measured value meets an expectation: pure, total, and never a pass where it cannot be told."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from pydantic import JsonValue

from policies.expectation import ANY, SOME, Expectation, Reference
from policies.wording import LARGEST, bounded, joined, listed, shown, words

LONGEST_TEXT = 10_000
"""Characters that a regular expression is tried on; a longer text is malformed."""

NOTHING_NEEDED = "nothing is needed, so there is nothing to judge"


class Holding(IntEnum):
    """How an expectation came out; of several, the highest counts."""

    HOLDS = 0
    BROKEN = 1
    MALFORMED = 2
    """It cannot be told: the value has the wrong type, or the spec lacks what it is compared with."""


@dataclass(frozen=True)
class Answer:
    """One expectation against one value: `broke` is what of the value did not meet it, `why` says it for people."""

    holding: Holding
    broke: JsonValue = None
    why: str = ""


class _MalformedError(Exception):
    """What is wrong with the value, or with what it is compared with."""


@dataclass(frozen=True)
class _Scope:
    spec: Mapping[str, JsonValue]
    fields: Mapping[str, JsonValue] = field(default_factory=dict)

    def resolve(self, value: object) -> JsonValue:
        if not isinstance(value, Reference):
            return list(value) if isinstance(value, tuple) else value  # type: ignore[return-value]
        where: Mapping[str, JsonValue] = self.spec if value.spec else self.fields
        name = value.spec or value.field or ""
        if name not in where:
            raise _MalformedError(f"{value} is not given")
        return where[name]


def answer(expectation: Expectation, value: JsonValue, spec: Mapping[str, JsonValue]) -> Answer:
    """Judges `value`, any JSON, with `spec` as the node's expectations. Never raises."""
    return _answer(expectation, value, _Scope(spec))


def _answer(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    found = [_one(name, expectation, value, scope) for name in expectation.predicates]
    return max(found, key=lambda each: each.holding)


def _one(name: str, expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    try:
        return PREDICATES[name](expectation, value, scope)
    except _MalformedError as wrong:
        return Answer(Holding.MALFORMED, bounded(value), str(wrong))


def _holds(true: bool, expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    if true:
        return Answer(Holding.HOLDS)
    return Answer(
        Holding.BROKEN, bounded(value), f"{shown(value)}, expected {words(expectation, scope.spec, scope.fields)}"
    )


def _kind(value: object) -> str:
    """JSON's name of a value's type; NaN, infinities and whole numbers that JSON cannot carry are `not a number`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case float() if not math.isfinite(value):
            return "not a number"
        case int() if abs(value) > LARGEST:
            return "not a number"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "not JSON"


def _require(value: JsonValue, *kinds: str) -> None:
    if _kind(value) not in kinds:
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected {' or '.join(kinds)}")


def _number(value: JsonValue) -> float:
    _require(value, "a number")
    return value  # type: ignore[return-value]


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Equality of JSON: by type, then by value. The depth is that of the shallower, so it ends."""
    if _kind(one) != _kind(other) or _kind(one) in ("not a number", "not JSON"):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _scalars(value: JsonValue, whose: str) -> list[JsonValue]:
    """A list of texts, whole numbers and truth values; raises on anything else."""
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise _MalformedError(f"{whose} is no list of names or whole numbers: {shown(value)}")
    return value


def _among(item: JsonValue, items: Sequence[JsonValue]) -> bool:
    return any(_same(item, each) for each in items)


def _equals(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    expected = scope.resolve(expectation.equals)
    if expected is not None:
        _require(value, _kind(expected))
    return _holds(_same(expected, value), expectation, value, scope)


def _at_most(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    limit = _number(scope.resolve(expectation.at_most))
    return _holds(_number(value) <= limit, expectation, value, scope)


def _at_least(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    limit = _number(scope.resolve(expectation.at_least))
    return _holds(_number(value) >= limit, expectation, value, scope)


def _one_of(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    options = _scalars(scope.resolve(expectation.one_of), "what is allowed")
    if not options:
        raise _MalformedError("nothing is allowed, so there is nothing to judge")
    _require(value, *sorted({_kind(each) for each in options}))
    return _holds(_among(value, options), expectation, value, scope)


def _matches(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    _require(value, "a text")
    text = str(value)
    if len(text) > LONGEST_TEXT:
        raise _MalformedError(f"a text of {len(text)} characters, longer than {LONGEST_TEXT}")
    return _holds(re.fullmatch(expectation.matches or "", text) is not None, expectation, value, scope)


def _empty(_expectation: Expectation, value: JsonValue, _scope: _Scope) -> Answer:
    if not isinstance(value, list | dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected a list or a mapping")
    if not value:
        return Answer(Holding.HOLDS)
    return Answer(Holding.BROKEN, bounded(value), f"{listed(value)}, expected none")


def _count(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    if not isinstance(value, list | dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, which has no count")
    assert expectation.count is not None  # noqa: S101 - `predicates` names only what is given
    return _answer(expectation.count, len(value), scope)


def _subset_of(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    allowed = _scalars(scope.resolve(expectation.subset_of), "what is allowed")
    others: list[JsonValue] = [each for each in _scalars(value, "what was measured") if not _among(each, allowed)]
    if not others:
        return Answer(Holding.HOLDS)
    return Answer(Holding.BROKEN, bounded(others), f"not allowed: {listed(others)}")


def _superset_of(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    needed = scope.resolve(expectation.superset_of)
    if isinstance(needed, dict):
        return _has_items(needed, value, scope)
    wanted, present = _scalars(needed, "what is needed"), _scalars(value, "what was measured")
    if not wanted:
        raise _MalformedError(NOTHING_NEEDED)
    missing: list[JsonValue] = [each for each in wanted if not _among(each, present)]
    if not missing:
        return Answer(Holding.HOLDS)
    return Answer(Holding.BROKEN, bounded(missing), f"missing: {listed(missing)}")


def _has_items(needed: dict[str, JsonValue], value: JsonValue, scope: _Scope) -> Answer:
    """Each needed key with its value. A key that is absent or null is missing, which breaks it rather than malforms."""
    if not isinstance(value, dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected a mapping")
    if not needed:
        raise _MalformedError(NOTHING_NEEDED)
    return _together({key: _has_item(expected, value.get(key), scope) for key, expected in needed.items()})


def _has_item(expected: JsonValue, value: JsonValue, scope: _Scope) -> Answer:
    if value is None and expected is not None:
        return Answer(Holding.BROKEN, None, f"missing, expected {shown(expected)}")
    if isinstance(expected, dict):
        return _one("superset_of", Expectation(superset_of=expected), value, scope)
    return _one("equals", Expectation(equals=expected), value, scope)


def _every(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    assert expectation.every is not None  # noqa: S101 - `predicates` names only what is given
    if not isinstance(value, list | dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected a value for each")
    expected = scope.resolve(expectation.of)
    answers = {
        str(key): _answer(expectation.every, each, scope)
        for key, each in (value.items() if isinstance(value, dict) else enumerate(value))
    }
    wrong = _headcount(expected, value)
    if wrong:
        answers = {"": Answer(Holding.BROKEN, len(value), wrong), **answers}
    return _together(answers)


def _headcount(expected: JsonValue, value: list[JsonValue] | dict[str, JsonValue]) -> str:
    """What is wrong with how many or which answered; nothing where all that are expected did and no other."""
    match expected:
        case str() if expected in (SOME, ANY):
            return "" if value or expected == ANY else "none answered"
        case bool():
            raise _MalformedError(f"how many there are is no number: {shown(expected)}")
        case int():
            names = None
            number = expected
        case dict() | list() if all(isinstance(each, str) for each in expected):
            names = {str(each) for each in expected}
            number = len(names)
        case _:
            raise _MalformedError(f"neither a number nor names: {shown(expected)}")
    if number < 1:
        raise _MalformedError("none is expected, so there is nothing to judge")
    if names is None:
        return "" if len(value) == number else f"{len(value)} answered, {number} expected"
    if not isinstance(value, dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected a mapping by name")
    missing, more = sorted(names - value.keys()), sorted(value.keys() - names)
    said = [f"no answer for {listed(missing)}"] if missing else []
    return "; ".join([*said, f"not expected: {listed(more)}"] if more else said)


def _fields(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    if not isinstance(value, dict):
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected a mapping")
    inner = _Scope(scope.spec, value)
    return _together(
        {
            name: _answer(each, value[name], inner)
            if name in value
            else Answer(Holding.MALFORMED, None, "was not measured")
            for name, each in (expectation.fields or {}).items()
        }
    )


def _any_of(expectation: Expectation, value: JsonValue, scope: _Scope) -> Answer:
    """The best of several; where none holds, one that is broken says more than one of another type."""
    best = min((_answer(each, value, scope).holding for each in expectation.any_of or ()), default=Holding.MALFORMED)
    if best is Holding.MALFORMED:
        raise _MalformedError(f"{shown(value)} is {_kind(value)}, expected {words(expectation, scope.spec)}")
    return _holds(best is Holding.HOLDS, expectation, value, scope)


def _together(answers: Mapping[str, Answer]) -> Answer:
    """Of many named answers: the worst, with what broke by name."""
    bad = {name: each for name, each in answers.items() if each.holding is not Holding.HOLDS}
    if not bad:
        return Answer(Holding.HOLDS)
    worst = max(each.holding for each in bad.values())
    said = [f"{shown(name)}: {each.why}" if name else each.why for name, each in bad.items()]
    return Answer(worst, bounded({name: each.broke for name, each in bad.items() if name}), joined(said, "; "))


PREDICATES: dict[str, Callable[[Expectation, JsonValue, _Scope], Answer]] = {
    "equals": _equals,
    "at_most": _at_most,
    "at_least": _at_least,
    "one_of": _one_of,
    "matches": _matches,
    "empty": _empty,
    "count": _count,
    "subset_of": _subset_of,
    "superset_of": _superset_of,
    "every": _every,
    "fields": _fields,
    "any_of": _any_of,
}
