"""Expectations and measured values in words: short, and safe to print whatever a node sent."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from pydantic import JsonValue

from policies.expectation import ANY, SOME, Expectation, Reference

MOST_ITEMS = 20
"""Items of a list or mapping that a verdict keeps."""
MOST_SAID = 4
"""Items that a sentence lists."""
LONGEST = 200
"""Characters of a text that a verdict keeps."""
LONGEST_REASON = 1000
"""Characters of a verdict's reason."""
LARGEST = 2**53
"""The whole number up to which JSON is exact (RFC 8785)."""
DEEPEST = 4


def bounded(value: JsonValue, depth: int = DEEPEST) -> JsonValue:
    """The value, or what of it fits into a verdict and into canonical JSON; what is left out is marked `…`."""
    match value:
        case str():
            return _text(value)
        case bool() | None:
            return value
        case int():
            return value if -LARGEST <= value <= LARGEST else "…"
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | dict() if depth == 0:
            return "…"
        case list():
            kept = [bounded(each, depth - 1) for each in value[:MOST_ITEMS]]
            return [*kept, f"… {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else kept
    items: dict[str, JsonValue] = {
        _text(key): bounded(each, depth - 1) for key, each in islice(value.items(), MOST_ITEMS)
    }
    return {**items, "…": f"{len(value) - MOST_ITEMS} more"} if len(value) > MOST_ITEMS else items


def _text(text: str) -> str:
    """Cut to a verdict's length, and without lone surrogates, which no canonical JSON has."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """What a node said, for a verdict's reason: on one line, without control characters, cut to its length."""
    line = "".join(each if each.isprintable() else " " for each in text[: LONGEST_REASON + 1])
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + "…"


def shown(value: object) -> str:
    """A value as a sentence has it: on one line, without control characters, at most 80 long."""
    value = bounded(value)  # type: ignore[arg-type]
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) and value and value.isprintable() else json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"


def listed(items: Collection[object]) -> str:
    """The first few items, and how many more there are."""
    return _cut([shown(each) for each in islice(items, MOST_SAID)], len(items), ", ")


def joined(sentences: Sequence[str], separator: str) -> str:
    """The first few sentences, and how many more there are."""
    return _cut(sentences[:MOST_SAID], len(sentences), separator)


def _cut(said: Sequence[str], of: int, separator: str) -> str:
    return separator.join([*said, *([f"and {of - len(said)} more"] if of > len(said) else [])])


def words(
    expectation: Expectation, spec: Mapping[str, JsonValue] | None = None, fields: Mapping[str, JsonValue] | None = None
) -> str:
    """An expectation for people, as in `each of 8: at most 5`; with `spec`, numbers stand in for their names."""

    def value(of: object) -> str:
        if isinstance(of, Reference):
            known = (spec if of.spec else fields) or {}
            name = of.spec or of.field or ""
            return said(known[name]) if name in known else str(of)
        return said(of)

    def said(of: object) -> str:
        if isinstance(of, list | tuple):
            return listed(of) or "none"
        if isinstance(of, dict):
            first = [f"{key} {shown(each)}" for key, each in islice(of.items(), MOST_SAID)]
            return _cut(first, len(of), ", ") or "none"
        return shown(of)

    def among(of: object) -> str:
        """A population: its size, or its names."""
        if isinstance(of, Reference) and of.spec in (spec or {}):
            of = (spec or {})[of.spec]  # type: ignore[index]
        if of in (SOME, ANY):
            return "those there are"
        return listed(of) if isinstance(of, list | tuple | dict) else value(of)

    def one(name: str) -> str:
        given = getattr(expectation, name)
        match name:
            case "equals":
                return value(given)
            case "at_most":
                return f"at most {value(given)}"
            case "at_least":
                return f"at least {value(given)}"
            case "one_of":
                return f"one of {value(given)}"
            case "matches":
                return f"like {given}"
            case "empty":
                return "none"
            case "count":
                return f"a count of {words(given, spec, fields)}"
            case "subset_of":
                return f"nothing but {value(given)}"
            case "superset_of":
                return f"all of {value(given)}"
            case "every":
                return f"each of {among(expectation.of)}: {words(given, spec, fields)}"
            case "any_of":
                return " or ".join(words(each, spec, fields) for each in given)
            case _:
                return ", ".join(f"{key} {words(each, spec)}" for key, each in given.items())

    return " and ".join(one(name) for name in expectation.predicates)
