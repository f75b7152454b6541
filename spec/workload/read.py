"""Reads a workload from YAML, with errors that name file, line and field: all of them at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spec.document import Document, read, written
from spec.load import SpecError, SpecErrors, in_order
from spec.workload.declare import Workload, declare
from spec.workload.figure import Impossible, WorkloadError

LIKE = "examples/workloads/llama3-70b.yaml"


@dataclass(frozen=True)
class Declared:
    """A file of a workload, and what it declares."""

    file: Path
    document: Document
    workload: Workload

    def errors(self, reasons: Iterable[Impossible], layout: int = 0) -> tuple[SpecError, ...]:
        """Where in the file the reasons are why a plan cannot be made. `layout` is the one that was planned."""
        return in_order(_error(self.file, self.document, each, layout) for each in reasons)


def load(path: Path) -> Declared:
    """The workload in a file. Raises SpecErrors."""
    document = read(path, like=LIKE)
    errors = [SpecError(path, fault.line, fault.field, fault.what, fault.advice) for fault in document.faults]
    if document.data is None or errors:
        raise SpecErrors(in_order(errors))
    try:
        return Declared(path, document, declare(document.data))
    except WorkloadError as error:
        raise SpecErrors(in_order(_error(path, document, each) for each in error.reasons)) from None


def _error(path: Path, document: Document, reason: Impossible, layout: int = 0) -> SpecError:
    parts: list[str | int] = [int(each) if each.isdecimal() else each for each in reason.field.split(".")]
    if parts[0] == "layout":
        parts[:1] = ["layouts", layout]
    where = tuple(parts) if parts != ["workload"] else ()
    return SpecError(path, document.line(where), written(where), reason.problem, reason.advice)
