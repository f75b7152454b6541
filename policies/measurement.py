"""A fact about one node, as the node suite reports it. Hostile input: everything in it is checked and bounded."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator


class Outcome(StrEnum):
    """Whether a measurement gave a value."""

    MEASURED = "measured"
    UNMEASURABLE = "unmeasurable"
    """The node says that this cannot be known there: never zero, never a pass."""
    ERROR = "error"
    """Measuring failed."""


class Measurement(BaseModel):
    """One fact. `value` is a scalar, a list, or for facts per device a mapping from device to value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", max_length=80)]
    outcome: Outcome
    value: JsonValue = None
    unit: Annotated[str, Field(max_length=20)] | None = None
    per: Annotated[str, Field(max_length=20)] | None = None
    """The kind of device that `value` is keyed by: `gpu`, `interface`, `peer`, …"""
    reason: Annotated[str, Field(max_length=2000)] | None = None
    """Why there is no value."""
    source: Annotated[str, Field(max_length=200)] | None = None
    """Where the value came from, for people: `NVML 580.95.05 (simulated)`, `/proc/meminfo`."""
    simulated: bool = False
    took_s: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _a_value_or_a_reason(self) -> "Measurement":
        if self.outcome is not Outcome.MEASURED and not self.reason:
            raise ValueError(f"{self.measure}: {self.outcome.value} without a reason")
        return self


class Examination(BaseModel):
    """What one node said of itself in one run of the suite.

    `complete` is false where the stream ended before the suite's closing record: then what is missing is missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    started: AwareDatetime
    finished: AwareDatetime | None
    complete: bool
    suite_digest: str
    identity: dict[str, JsonValue]
    """The node's hardware identity: machine-id, DMI serial, GPU UUIDs, NIC addresses. See `policies.identity`."""
    measurements: tuple[Measurement, ...]
    unreachable: str | None = None
    """Why the node could not be examined at all."""
    fault: Annotated[str, Field(max_length=2000)] | None = None
    """Why a run is not complete."""

    def measured(self, name: str) -> Measurement | None:
        """The measurement of a name; none where it is missing or came twice: a fact told twice is not known."""
        found = [each for each in self.measurements if each.measure == name]
        return found[0] if len(found) == 1 else None

    def devices(self, name: str) -> dict[str, JsonValue] | None:
        """What was measured of each device, by its name; none where that is not known or was not told by device."""
        found = self.measured(name)
        if found is None or found.outcome is not Outcome.MEASURED or not isinstance(found.value, dict):
            return None
        return found.value

    def fresh(self, now: datetime, seconds: float) -> bool:
        """Whether the run ended at most so long ago, and not in the future."""
        return self.finished is not None and 0 <= (now - self.finished).total_seconds() <= seconds
