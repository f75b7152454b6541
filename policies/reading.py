"""Reads policy files: YAML into models, with errors that name file, line and field, all of them at once."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from spec.document import Document, Path_, written
from spec.document import read as read_document

T = TypeVar("T")


class PolicyError(Exception):
    """A policy that cannot be used; each problem says what is wrong, where, and what to do."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def read(path: Path, shape: type[T], top: type[dict[str, Any]] | type[list[Any]] = dict) -> T:
    """The file's content as `shape`. Raises PolicyError with every problem in the file."""
    document = read_document(path, top)
    if document.faults:
        raise PolicyError(
            _said(path, each.line, each.field, f"{each.what} · {each.advice}") for each in document.faults
        )
    try:
        return TypeAdapter(shape).validate_python(document.data)
    except ValidationError as invalid:
        raise PolicyError(dict.fromkeys(_problems(path, document, invalid))) from None


def _problems(path: Path, document: Document, invalid: ValidationError) -> Iterator[str]:
    for each in invalid.errors(include_url=False):
        where = _within(document, each["loc"])
        match each["type"]:
            case "extra_forbidden":
                what = "no such key · remove it, or see the file's neighbours for the keys there are"
            case "missing":
                where, what = (*where, each["loc"][-1]), "missing · add it"
            case "string_pattern_mismatch":
                what = f"{each['input']!r} does not have the form of this field · it matches {each['ctx']['pattern']}"
            case "value_error":
                what = str(each["ctx"]["error"])
            case _:
                what = each["msg"]
        yield _said(path, document.line(where), written(where), what)


def _within(document: Document, loc: Path_) -> Path_:
    """The part of an error's place that is written in the file: the rest are names of pydantic's own."""
    found: Path_ = ()
    for step in loc:
        if (*found, step) in document.lines:
            found = (*found, step)
    return found


def _said(path: Path, line: int, field: str, what: str) -> str:
    return f"{path}:{line}: {field}: {what}" if field else f"{path}:{line}: {what}"
