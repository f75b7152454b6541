"""Makes a whole spec of a broken one, so that what is not broken can be looked at too.

A person who has made five mistakes wants to hear of five, not of three and then of two: the proofs need a whole spec,
so every field that is wrong gets a value that is possible, and what follows from it is not believed.
"""

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from spec.document import Path_, unwritten
from spec.load import near, part
from spec.schema import Cluster
from spec.schema.contradictions import Contradiction

_ROUNDS = 4
"""A field that stands in may bring a contradiction with it; more rounds than this are not worth it."""


@dataclass(frozen=True)
class Mended:
    """A spec without the errors."""

    cluster: Cluster
    changed: frozenset[Path_]
    """The fields that were changed for it."""
    contradictions: tuple[Contradiction, ...]
    """Those between fields that were not changed: they came to light when the rest was possible."""

    def unsure(self, field: str) -> bool:
        """Whether a field was changed, or holds one that was, or is held by one."""
        return _touches(unwritten(field), self.changed)


def mend(data: Any) -> Mended | None:
    """A spec without the errors; none where that is not possible."""
    data = copy.deepcopy(data)
    changed: set[Path_] = set()
    found: list[Contradiction] = []
    for _ in range(_ROUNDS):
        try:
            cluster = Cluster.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as invalid:
            for error in invalid.errors(include_url=False):
                if error["type"] == "contradiction":
                    every = error["ctx"]["found"]
                    found += [each for each in every if not _follows(each, changed)]
                    for each in every:
                        _put(data, unwritten(each.field), each.instead)
                    changed |= {unwritten(each.field) for each in every}
                else:
                    changed |= _mend(data, error)
        else:
            return Mended(cluster, frozenset(changed), tuple(found))
    return None


def _follows(contradiction: Contradiction, changed: set[Path_]) -> bool:
    """Whether a contradiction may come from what was changed."""
    return any(_touches(unwritten(field), changed) for field in (contradiction.field, contradiction.against))


def _touches(field: Path_, others: Iterable[Path_]) -> bool:
    return any(field[: len(each)] == each or each[: len(field)] == field for each in others)


def _mend(data: Any, error: ErrorDetails) -> set[Path_]:
    where = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        _parent(data, where).pop(where[-1], None)
        meant = near(where)
        return {meant} if meant else set()
    if error["type"] == "too_short" and error["input"]:
        return set()  # its items are mended one by one
    if "default" in part(where[:-1]).get("properties", {}).get(where[-1], {}):
        _parent(data, where).pop(where[-1], None)
    else:
        _put(data, where, _possible(where))
    return {where}


def _parent(data: Any, where: Path_) -> Any:
    for step in where[:-1]:
        data = data[step]
    return data


def _put(data: Any, where: Path_, value: Any) -> None:
    try:
        parent = _parent(data, where)
    except KeyError:  # the item of a list that is not written, as is its default
        where, value = where[:-1], [value]
        parent = _parent(data, where)
    parent[where[-1]] = value


def _possible(where: Path_) -> Any:
    """A value that a field can have, from the schema."""
    takes = part(where)
    if "enum" in takes:
        return takes["enum"][0]
    if "const" in takes:
        return takes["const"]
    match takes.get("type"):
        case "object":
            return {name: _possible((*where, name)) for name in takes.get("required", ())}
        case "array":
            return [_possible((*where, 0))]
        case "integer" | "number":
            return takes.get("minimum", takes.get("exclusiveMinimum", 0) + 1)
    formats = {"ipv4network": "10.255.255.0/24", "duration": "P1D"}
    return formats.get(takes.get("format", ""), "stand-in-for-what-is-wrong")
