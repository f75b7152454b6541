"""The language in which a control says what it expects: a small closed set of predicates that compose.

Several predicates in one mapping must all hold. A number or value may be `{spec: gpu.count}`, looked up in the node's
expectations, or, inside `fields`, `{field: max_width}`, the neighbouring field of what was measured.

A value of the wrong type is `malformed`, never a pass: true is not 1, `"0"` is not 0, NaN is not a number.
"""

import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)


class Reference(BaseModel):
    """A value that is known only for a node: from its expectations, or from the measurement's own fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: str | None = None
    field: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.spec is None) == (self.field is None):
            raise ValueError("write {spec: NAME} or {field: NAME}")
        return self

    def __str__(self) -> str:
        return f"the spec's {self.spec}" if self.spec else f"its {self.field}"


def _reference(value: object) -> object:
    """A mapping with the key `spec` or `field` is meant as a reference, so that a misspelt one is no plain value."""
    if isinstance(value, dict) and value.keys() & {"spec", "field"}:
        return Reference.model_validate(value)
    return value


def _reader(kind: str, accepts: Callable[[object], bool]) -> BeforeValidator:
    """One message for what pydantic would say once for each member of a union."""

    def read(value: object) -> object:
        value = _reference(value)
        if isinstance(value, Reference) or accepts(value):
            return tuple(value) if isinstance(value, list) else value
        raise ValueError(f"write {kind}, or {{spec: NAME}}")

    return BeforeValidator(read)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_scalars(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, str | int) for each in value)


def _are_items(value: object) -> bool:
    return isinstance(value, dict) and bool(value)


def _is_population(value: object) -> bool:
    if value in (SOME, ANY):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(each, str) for each in value)
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


SOME = "some"
"""A population that the spec does not know, such as local disks: whatever there is, one at least."""
ANY = "any"
"""A population of events, such as lines of a log, where none is best."""

Scalar: TypeAlias = str | int | bool
Plain: TypeAlias = Annotated[Reference | JsonValue, BeforeValidator(_reference)]
Number: TypeAlias = Annotated[Reference | int | float, _reader("a number", _is_number)]
Scalars: TypeAlias = Annotated[
    Reference | tuple[Scalar, ...], _reader("a list of names, whole numbers or truth values", _are_scalars)
]
Needed: TypeAlias = Annotated[
    Reference | tuple[Scalar, ...] | dict[str, JsonValue],
    _reader("a list, or a mapping of keys to values", lambda value: _are_scalars(value) or _are_items(value)),
]
Population: TypeAlias = Annotated[
    Reference | int | Literal["some", "any"] | tuple[str, ...],
    _reader("a number from 1 up, a list of names, some, any", _is_population),
]


class Expectation(BaseModel):
    """What a measured value must be. At least one predicate; all that are given must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    equals: Plain = None
    """The same JSON value; 1 and 1.0 are the same, 1 and true are not."""
    at_most: Number | None = None
    """A number that is this or less."""
    at_least: Number | None = None
    """A number that is this or more."""
    one_of: Scalars | None = None
    """One of these names, whole numbers or truth values."""
    matches: Annotated[str, Field(max_length=400), AfterValidator(_pattern)] | None = None
    """A regular expression for the whole of a text."""
    empty: Literal[True] | None = None
    """A list or mapping with nothing in it. A missing value is not empty."""
    count: "Expectation | None" = None
    """Of the number of items in a list or mapping."""
    subset_of: Scalars | None = None
    """A list all of whose items are among these; it may be empty."""
    superset_of: Needed | None = None
    """A list that has all of these, or a mapping that has all of these keys with these values; mappings in it too."""
    every: "Expectation | None" = None
    """Of each value of a mapping or list, whose population `of` says: fewer or more is never a pass."""
    of: Population | None = None
    """How many there are, or their names (a list's items, a mapping's keys), `some` (one at least), or `any`."""
    fields: Annotated[dict[str, "Expectation"], Field(min_length=1)] | None = None
    """Of the named fields of a mapping. A field that is missing is malformed; others do not matter."""
    any_of: Annotated[tuple["Expectation", ...], Field(min_length=2)] | None = None
    """At least one of these, for a fact that has values of several types."""

    @cached_property
    def predicates(self) -> tuple[str, ...]:
        """Names of the predicates given, in the order in which they are declared here."""
        return tuple(name for name in type(self).model_fields if name in self.model_fields_set and name not in ("of",))

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        given = self.model_fields_set
        nulls = sorted(name for name in given - {"equals"} if getattr(self, name) is None)
        if nulls:
            raise ValueError(f"{nulls[0]} has no value")
        if not self.predicates:
            raise ValueError(f"expects nothing; write one of {', '.join(type(self).model_fields)}")
        if ("every" in given) != ("of" in given):
            raise ValueError("`every` needs `of` beside it (how many, or which), and `of` needs `every`")
        return self

    def references(self) -> frozenset[str]:
        """The spec's names that this expectation looks up, at any depth."""
        found: set[str] = set()
        for name in self.model_fields_set:
            value = getattr(self, name)
            if isinstance(value, Reference) and value.spec:
                found.add(value.spec)
            elif isinstance(value, Expectation):
                found |= value.references()
            elif name in ("fields", "any_of"):
                inner = value.values() if name == "fields" else value
                found |= {each for one in inner for each in one.references()}
        return frozenset(found)
