"""A control: one thing that must be true of a node, why, how it is measured and how it is repaired."""

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from policies.expectation import Expectation
from policies.verdict import Severity
from spec.schema import Capability, MachineKind, Role

Dotted: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", max_length=80)]
Sentence: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=600)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AppliesTo(_Written):
    """The nodes that a control is about: all, unless narrowed."""

    role: Role | None = None
    machine: MachineKind | None = None
    expects: Dotted | None = None
    """A name of the node's expectations: where the spec expects none of it, there is nothing to examine."""


class Repair(_Written):
    """Who mends it: the Ansible role that `muster converge` runs, or none where only a person can."""

    role: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    do: Sentence


class Control(_Written):
    """One entry of `policies/controls/*.yaml`."""

    id: Dotted
    title: Sentence
    severity: Severity
    why: Sentence
    """One honest sentence; where it has a figure, the figure's source."""
    applies_to: AppliesTo = AppliesTo()
    requires: tuple[Capability, ...] = ()
    """What the machine must have of its own; a node without it is `not_applicable`."""
    measure: Dotted
    """The measurement of the node suite that is judged."""
    expect: Expectation
    repair: Repair
    references: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+:\S+$")], ...], Field(min_length=1)
    ]
    """Where to read on, as `SOURCE:ITEM`: `nist-800-53:SI-13`, `nvidia:xid-48`."""

    @property
    def looked_up(self) -> frozenset[str]:
        """The names of the node's expectations that the control needs."""
        own = frozenset([self.applies_to.expects]) if self.applies_to.expects else frozenset()
        return self.expect.references() | own

    @model_validator(mode="after")
    def _requires_once(self) -> "Control":
        if len(set(self.requires)) != len(self.requires):
            raise ValueError("requires: names a capability twice")
        return self
