"""The seven states in which a control can leave a node."""

from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue


class State(StrEnum):
    """How a control came out. Only the first three count towards a certificate, a waiver while it lasts."""

    PASS = "pass"  # noqa: S105
    NOT_APPLICABLE = "not_applicable"
    WAIVED = "waived"
    FAIL = "fail"
    ERROR = "error"
    UNREACHABLE = "unreachable"
    NOT_EVALUATED = "not_evaluated"

    @property
    def counts(self) -> bool:
        """Whether a node may be certified with it."""
        return self in (State.PASS, State.NOT_APPLICABLE, State.WAIVED)


class Severity(StrEnum):
    """How much a failed control matters. A failed `warning` is reported and does not keep a node out."""

    CRITICAL = "critical"
    MAJOR = "major"
    WARNING = "warning"


class WaiverNote(BaseModel):
    """The waiver that covered a verdict; `real` is what the control really said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    reason: str
    expires: AwareDatetime
    real: State


class Verdict(BaseModel):
    """One control on one node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    control: str
    node: str
    state: State
    severity: Severity
    title: str
    found: JsonValue = None
    """What was measured, or what of it broke the control: `{"gpu-3": 2}`."""
    expected: str = ""
    """The expectation in words: `every one is 0`."""
    reason: str = ""
    """Why the state is not `pass`, for people."""
    repair: str = ""
    simulated: bool = False
    waiver: WaiverNote | None = None

    @property
    def keeps_out(self) -> bool:
        """Whether the node may not be certified with it. A warning may fail, but not go unknown."""
        return not self.state.counts and not (self.severity is Severity.WARNING and self.state is State.FAIL)
