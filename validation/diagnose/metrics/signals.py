"""What is looked for in metrics: which, by which measure, and why from there on. Data in `signals.yaml`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from policies.reading import read

_Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{2,120}$")]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=300)]
_Source = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+:\S+$")]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Written):
    """One way to know a figure. All are looked at; of a device the first that deviates is told."""

    name: _Name
    scale: Annotated[float, Field(gt=0)] = 1.0
    """By which it is multiplied, so that all ways have one unit."""
    device: tuple[str, ...] = ()
    """Labels that tell devices of a node apart; series that differ in others are added up."""
    only: dict[str, str] = Field(default_factory=dict)
    """Labels that it must have, as `part: data`."""
    over: _Name | None = None
    """A gauge of the same node and device that it is divided by."""
    per: _Name | None = None
    """A counter of the same, by whose increase that of this one is divided: seconds an operation."""
    least: Annotated[float, Field(ge=0)] = 0.0
    """Of `per` from one time to the next, below which the division says nothing."""
    where: _Name | None = None
    """Only times count at which this metric of the same node and device is `at_least`."""
    at_least: float = 0.0
    source: _Source
    """Where the metric is known from."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that are to be asked for."""
        return tuple(filter(None, (self.name, self.over, self.per, self.where)))


class Rose(_Written):
    """A counter that rose by `least` or more; by `times` as much as the others' median, where there are others."""

    by: Literal["rose"]
    least: Annotated[float, Field(gt=0)]
    times: Annotated[float, Field(gt=1)] | None = None


class Became(_Written):
    """A gauge that holds a code, and became another one than before, not 0."""

    by: Literal["became"]


class Beyond(_Written):
    """Above or below a bound for `for_s` seconds; near the end of the job only, where `last_s` says how near."""

    by: Literal["beyond"]
    above: float | None = None
    below: float | None = None
    for_s: Annotated[float, Field(ge=0)]
    last_s: Annotated[float, Field(gt=0)] | None = None
    absolute: bool = False
    """Whether what is negative counts as what is positive."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("give above or below")
        return self

    def is_so(self, value: float) -> bool:
        """Whether a value is beyond the bound."""
        size = abs(value) if self.absolute else value
        return size > self.above if self.above is not None else size < (self.below or 0.0)


class Shifted(_Written):
    """From one level to another for `for_s` seconds, while at least `others` of the others kept theirs."""

    by: Literal["shifted"]
    before: float
    after: float
    """Below `before` it fell, above it rose."""
    for_s: Annotated[float, Field(gt=0)]
    others: Annotated[float, Field(gt=0, le=1)] | None = None

    def was(self, value: float) -> bool:
        """Whether a value is at the level of before."""
        return value >= self.before if self.after < self.before else value <= self.before

    def came(self, value: float) -> bool:
        """Whether a value is at the level of after."""
        return value <= self.after if self.after < self.before else value >= self.after


class Differs(_Written):
    """One whose median is `times` that of the others (below 1: that part of it), and apart by `least`."""

    by: Literal["differs"]
    times: Annotated[float, Field(gt=0)]
    least: Annotated[float, Field(gt=0)]


class Bits(_Written):
    """A mask in which one of these bits was set in `share` of the times."""

    by: Literal["bits"]
    bits: Annotated[dict[int, str], Field(min_length=1)]
    share: Annotated[float, Field(gt=0, le=1)]


class Signal(_Written):
    """One thing to look for."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{2,40}$")]
    """`metrics.ID` is the rule that knows its line."""
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)]
    find: Annotated[Rose | Became | Beyond | Shifted | Differs | Bits, Field(discriminator="by")]
    noun: str = ""
    """What a device is."""
    says: _Text
    """The line, with {who}, {value}, {before}, {usual}, {others} and {clock}."""
    why: _Text
    """Why from there on, and not before."""


PATH = Path(__file__).with_name("signals.yaml")


def load_signals() -> tuple[Signal, ...]:
    """All of them. Raises PolicyError."""
    return read(PATH, tuple[Signal, ...], list)
