"""A workload as people write it: read from plain data, with errors that name the field and say what to do."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from spec.schema.base import Declared
from spec.workload.curve import Curve
from spec.workload.figure import Impossible, WorkloadError
from spec.workload.gpus import Gpu
from spec.workload.layout import Layout
from spec.workload.model import Model
from spec.workload.training import Run, Training


class Workload(Declared):
    """What a file of a workload declares."""

    model: Model
    layouts: Annotated[tuple[Layout, ...], Field(max_length=100)] = ()
    """To plan and compare; none asks for a search."""
    training: Training
    run: Run = Run()
    gpus: Annotated[int, Field(ge=1)] | None = None
    """For a search; by default all that the cluster has."""
    gpu: Gpu | None = None
    """The cluster's GPU, where the catalogue does not have it."""
    in_node: Curve | None = None
    """Bus bandwidth of an all-reduce in one node, as measured."""
    between: Curve | None = None
    """The same between nodes, all their GPUs taking part."""


def declare(data: Any) -> Workload:
    """The workload of plain data (YAML or JSON). Raises WorkloadError with every fault in it."""
    if not isinstance(data, Mapping):
        what = "nothing" if data is None else type(data).__name__
        raise WorkloadError(
            [Impossible(field="workload", problem=f"{what} is no mapping", advice="declare model and training in it")]
        )
    try:
        return Workload.model_validate(data)
    except ValidationError as error:
        found = error.errors()
        misspelt = {(*each["loc"][:-1], _meant(each)) for each in found if each["type"] == "extra_forbidden"}
        # A field that is there under a name much like its own is not missing as well.
        told = [each for each in found if each["type"] != "missing" or each["loc"] not in misspelt]
        raise WorkloadError([_reason(each) for each in told]) from None


def _reason(error: ErrorDetails) -> Impossible:
    where = ".".join(str(part) for part in error["loc"]) or "workload"
    kind, told = error["type"], error["msg"]
    if kind == "value_error":
        problem, _, advice = told.removeprefix("Value error, ").partition(": ")
        return Impossible(field=where, problem=problem, advice=advice or "correct it")
    match kind:
        case "missing":
            problem = "missing"
        case "extra_forbidden":
            problem = "no such field"
        case _:
            problem = f"{_short(error['input'])}, but {told.replace('Input should', 'it should')}"
    return Impossible(field=where, problem=problem, advice=_advice(error))


def _meant(error: ErrorDetails) -> str | None:
    """The field that an unknown one was meant to be, by its spelling."""
    close = get_close_matches(str(error["loc"][-1]), _names(), n=1)
    return close[0] if close else None


def _advice(error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return "declare it"
        case "extra_forbidden":
            meant = _meant(error)
            return f"did you mean {meant}?" if meant else "remove it"
        case "greater_than_equal":
            return f"give {_limit(error)} or more"
        case "greater_than":
            return f"give more than {_limit(error)}"
        case "less_than_equal":
            return f"give {_limit(error)} or less"
        case "less_than":
            return f"give less than {_limit(error)}"
        case "enum" | "literal_error":
            return f"use {(error.get('ctx') or {}).get('expected', 'one of them')}"
        case _:
            return "correct it"


def _limit(error: ErrorDetails) -> str:
    return str(next(iter((error.get("ctx") or {}).values()), "the limit"))


def _names() -> list[str]:
    kinds: tuple[type[Declared], ...] = (Workload, Model, Layout, Training, Run, Gpu, Curve)
    return [name for kind in kinds for name in kind.model_fields]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
