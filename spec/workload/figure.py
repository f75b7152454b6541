"""A number that says where it comes from and how far it may be off; and what makes a workload impossible."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A part of a plan: immutable; `model_dump` is what `--json` prints."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Result):
    """One number of a plan."""

    value: float
    unit: str
    source: str
    """The formula and whose it is."""
    error: float
    """The part of the value by which the truth may differ either way; 0 where it is counted, not estimated."""


class Impossible(Result):
    """One reason why a workload cannot run, and what to do."""

    field: str
    """What to change, as in `layout.tensor`."""
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem} · {self.advice}"


class WorkloadError(ValueError):
    """A workload that cannot run as declared: all the reasons at once."""

    def __init__(self, reasons: Sequence[Impossible]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(str(each) for each in self.reasons))
