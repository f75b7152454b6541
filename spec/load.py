"""Reads a cluster spec from YAML, with errors that name file, line and field: all of them at once."""

import copy
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from spec.document import Document, Path_, read, unwritten, written
from spec.schema import Cluster

MOST = 100
"""Errors that are told one by one."""


@dataclass(frozen=True)
class SpecError:
    """One thing that is wrong with a spec. `field` is empty where it is the file itself."""

    file: Path
    line: int
    field: str
    what: str
    advice: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.file}:{self.line}: {field}{self.what}" + (f"\n    {self.advice}" if self.advice else "")


class SpecErrors(ValueError):  # noqa: N818 - it holds several
    """Everything that is wrong with a spec, in the order of its lines."""

    def __init__(self, errors: tuple[SpecError, ...]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


@dataclass(frozen=True)
class Loaded:
    """A file that was read: its spec if it holds one, and what is wrong with it if not."""

    file: Path
    document: Document
    cluster: Cluster | None
    errors: tuple[SpecError, ...]

    def line(self, field: str) -> int:
        """The line of a field, as in `nodes[0].nics.fabric`; where it is not written, of what encloses it."""
        return self.document.line(unwritten(field))


def load(path: Path) -> Cluster:
    """The spec in a file. Raises SpecErrors."""
    found = examine(path)
    if found.cluster is None:
        raise SpecErrors(found.errors)
    return found.cluster


def locate(path: Path, field: str) -> int:
    """The line of a field in a file; of what encloses it where it is not written; 1 where there is nothing to read."""
    return read(path).line(unwritten(field))


def dump(cluster: Cluster) -> str:
    """A spec as YAML, every field written out: `load` of it gives an equal spec."""
    text: str = yaml.safe_dump(cluster.model_dump(mode="json", by_alias=True), sort_keys=False, allow_unicode=True)
    return text


def schema() -> dict[str, Any]:
    """The JSON schema of a cluster spec, for editors and documentation."""
    return copy.deepcopy(_schema())


@cache
def _schema() -> dict[str, Any]:
    found = Cluster.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def examine(path: Path) -> Loaded:
    """A file, read and checked. Never raises on what the file holds."""
    document = read(path)
    errors = [SpecError(path, fault.line, fault.field, fault.what, fault.advice) for fault in document.faults]
    cluster = None
    if isinstance(document.data, dict):
        try:
            # JSON and strict: a list is a tuple and text is an address there, but true is no number and "5" is none
            cluster = Cluster.model_validate_json(json.dumps(document.data), strict=True)
        except ValidationError as invalid:
            errors += _errors(path, document, invalid)
    return Loaded(path, document, None if errors else cluster, in_order(errors))


def in_order(errors: Iterable[SpecError]) -> tuple[SpecError, ...]:
    """Errors by line, each once."""
    return tuple(sorted(dict.fromkeys(errors), key=lambda error: (error.line, error.field)))


def _errors(path: Path, document: Document, invalid: ValidationError) -> Iterator[SpecError]:
    every = sorted(invalid.errors(include_url=False), key=lambda error: document.line(tuple(error["loc"])))
    found = every[:MOST]
    if len(every) > MOST:
        line = document.line(tuple(every[MOST]["loc"]))
        yield SpecError(path, line, "", f"{len(every) - MOST:,} more errors from here on", "mend those above first")
    meant = {near(tuple(error["loc"])) for error in found if error["type"] == "extra_forbidden"}
    for error in found:
        if error["type"] == "contradiction":
            for each in error["ctx"]["found"]:
                yield SpecError(path, document.line(unwritten(each.field)), each.field, each.what, each.advice)
            continue
        if error["type"] == "too_short" and error["input"]:
            continue  # its items are not valid, which has been said
        where = tuple(error["loc"])
        if error["type"] == "missing" and where in meant:
            continue  # it is there, misspelt
        what, advice = _words(error, where)
        yield SpecError(path, document.line(where), written(where), what, advice)


def _words(error: ErrorDetails, where: Path_) -> tuple[str, str]:
    """What is wrong and what to do, in words for people who write specs and not Python."""
    kind, context, given = error["type"], error.get("ctx", {}), _shown(error["input"])
    match kind:
        case "extra_forbidden":
            return _unknown(where)
        case "missing":
            return "missing", f"add it under {written(where[:-1]) or 'the top level'}: {_type(where)}"
        case "enum" | "literal_error":
            allowed = context["expected"].replace("'", "")
            near = difflib.get_close_matches(str(error["input"]), allowed.replace(" or ", ", ").split(", "), n=1)
            return f"{given} is not one of {allowed}", f"did you mean {near[0]}?" if near else "take one of them"
        case "value_error":
            return f"{given} is not valid", str(context["error"])
        case "string_pattern_mismatch":
            return f"{given} does not have the form of this field", f"it matches {context['pattern']}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{given}, but this is a group of keys", f"write {_type(where)}"
        case "too_short":
            return "an empty list", f"give at least {context['min_length']}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            limits = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
            limit = " ".join(f"{word} {context[key]}" for key, word in limits.items() if key in context)
            return f"{given} is out of range: {limit}", f"write {_type(where)}"
    return f"{given}, which cannot be", f"write {_type(where)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"


def near(where: Path_) -> Path_ | None:
    """The field that was meant by an unknown key, if one is spelt much like it."""
    known = part(where[:-1]).get("properties", {})
    found = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.6)
    return (*where[:-1], found[0]) if found else None


def _unknown(where: Path_) -> tuple[str, str]:
    meant = near(where)
    keys = f"the keys here are {', '.join(part(where[:-1]).get('properties', {}))}"
    return "no such key", f"did you mean {meant[-1]}? {keys}" if meant else keys


def _type(where: Path_) -> str:
    """What a field takes, in a few words, from the schema."""
    takes = part(where)
    if "enum" in takes:
        return "one of " + ", ".join(map(str, takes["enum"]))
    if "const" in takes:
        return str(takes["const"])
    if "properties" in takes:
        return "a group of keys: " + ", ".join(takes.get("required", takes["properties"]))
    words = {"integer": "a whole number", "number": "a number", "array": "a list", "boolean": "true or false"}
    formats = {"ipv4network": "a network, as in 10.0.0.0/16", "duration": "a duration, as in P7D"}
    word = formats.get(takes.get("format", ""), words.get(takes.get("type", ""), "text"))
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    return " ".join([word, *(f"{name} {takes[bound]}" for bound, name in bounds.items() if bound in takes)])


def part(where: Path_) -> Mapping[str, Any]:
    """The part of the schema that describes a field; empty where there is no such field."""
    whole = _schema()
    found: Mapping[str, Any] = whole
    for step in (*where, None):
        if "anyOf" in found:
            found = next(each for each in found["anyOf"] if each.get("type") != "null")
        while "$ref" in found:
            found = whole["$defs"][found["$ref"].rpartition("/")[2]]
        if step is not None:
            found = found.get("items", {}) if isinstance(step, int) else found.get("properties", {}).get(step, {})
    return found
