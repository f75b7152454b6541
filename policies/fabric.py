"""What the fabric's tests found: bandwidth of each pair on each rail, the collective's sweep, and where a fault is.

The results judge themselves: whether a pair or a sweep is good follows from its numbers and cannot be said otherwise.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, model_validator

from policies.verdict import State

REPEATS = 3
"""Fewest repeats of a size: one shot flutters, and drains good nodes (azurehpc-health-checks#628)."""

LONGEST = 2000
"""Characters of a text that is kept: it may end with what nodes said, which never breaks a result."""


def _cut(text: object) -> object:
    return f"{text[: LONGEST - 1]}…" if isinstance(text, str) and len(text) > LONGEST else text


_Text = Annotated[str, BeforeValidator(_cut), Field(max_length=LONGEST)]
_Rate = Annotated[FiniteFloat, Field(ge=0)]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PairTest(_Result):
    """Bandwidth between two nodes over one rail, the worse direction, Gb/s."""

    a: str
    b: str
    rail: Annotated[int, Field(ge=0)]
    gbps: _Rate | None
    """None where it could not be measured."""
    floor_gbps: Annotated[FiniteFloat, Field(gt=0)]
    tool: str = ""
    reason: _Text = ""
    """Why there is no figure."""

    @property
    def ok(self) -> bool:
        """Measured, and at or above the floor."""
        return self.gbps is not None and self.gbps >= self.floor_gbps


class SweepPoint(_Result):
    """One message size: median bandwidths of its repeats in GB/s (10^9 bytes/s), and elements that were wrong."""

    bytes: Annotated[int, Field(gt=0)]
    algbw: _Rate
    busbw: _Rate
    wrong: Annotated[int, Field(ge=0)]
    repeats: Annotated[int, Field(ge=1)]


class Sweep(_Result):
    """One collective operation over a range of sizes."""

    op: str
    backend: str
    """`nccl`, or `gloo` where there is no GPU."""
    rail: Annotated[int, Field(ge=0)] | None = None
    """The one rail that carried it; none where all did."""
    ranks: Annotated[int, Field(ge=1)]
    nodes: Annotated[tuple[str, ...], Field(min_length=1)]
    points: tuple[SweepPoint, ...]
    plateau: _Rate | None
    """Bus bandwidth of large messages, GB/s; none where the sweep did not get that far."""
    floor: Annotated[FiniteFloat, Field(gt=0)]
    """What the plateau must reach, GB/s."""
    floor_source: _Text = ""
    """Where the floor comes from: `80 % of 2 rails × 1 Gb/s`."""
    reason: _Text = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the sweep is not good; empty where it is."""
        found = [self.reason] if self.reason else []
        if not self.points:
            found.append("no size was measured")
        wrong = sum(point.wrong for point in self.points)
        if wrong:
            found.append(f"{wrong} wrong elements")
        few = [point.bytes for point in self.points if point.repeats < REPEATS]
        if few:
            found.append(f"{len(few)} sizes with fewer than {REPEATS} repeats")
        if self.plateau is None:
            found.append("large messages were not measured")
        elif self.plateau < self.floor:
            found.append(f"{self.plateau:.3g} GB/s on large messages, at least {self.floor:.3g} expected")
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Correct, repeated, and at or above the floor."""
        return not self.faults


class FaultKind(StrEnum):
    """What a fault was traced to."""

    NODE = "node"
    RAIL = "rail"
    """One rail of the named nodes; of all nodes where none is named."""
    LEAF = "leaf"
    """A leaf switch, or all its uplinks."""
    PATH = "path"
    """Something between nodes that are good themselves: a cable, a switch."""
    INCONCLUSIVE = "inconclusive"


BETWEEN = frozenset({FaultKind.PATH, FaultKind.LEAF})
"""Faults that lie between nodes: of those that a leaf cuts off, the finding names each that is kept out."""


class Finding(_Result):
    """Where a fault is."""

    kind: FaultKind
    subject: _Text
    """In words: `gpu-1`, `rail 0 of gpu-1`, `leaf-0 to leaf-2`."""
    nodes: tuple[str, ...] = ()
    """The nodes in question; none means that it may be any."""
    evidence: _Text

    @property
    def named(self) -> str:
        """The subject, and that it is only suspected where it is."""
        return f"inconclusive: {self.subject}" if self.kind is FaultKind.INCONCLUSIVE else self.subject


class FabricResult(_Result):
    """One run of the fabric's tests over some nodes."""

    started: AwareDatetime
    finished: AwareDatetime
    nodes: tuple[str, ...]
    """The nodes that took part."""
    pairs: tuple[PairTest, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    findings: tuple[Finding, ...] = ()
    simulated: tuple[str, ...] = ()
    """What was not real, in words: `gloo stands in for NCCL`, `rails carry TCP`."""
    state: State
    reason: _Text = ""

    @model_validator(mode="after")
    def _a_pass_is_earned(self) -> Self:
        if self.state not in (State.PASS, State.FAIL, State.ERROR, State.NOT_EVALUATED):
            raise ValueError(f"a fabric cannot be {self.state.value}")
        if self.state is State.PASS and (faults := self.faults):
            raise ValueError(f"the fabric is said to pass, but {faults[0]}")
        return self

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything in the findings and numbers that speaks against a pass."""
        found = [finding.named for finding in self.findings]
        found += [] if self.sweeps else ["no collective was run"]
        found += [
            f"rail {pair.rail} {pair.a} – {pair.b}: "
            + (pair.reason or "not measured" if pair.gbps is None else f"{pair.gbps:.3g} Gb/s")
            + f", at least {pair.floor_gbps:.3g} expected"
            for pair in self.pairs
            if not pair.ok
        ]
        found += [f"{sweep.op}: {fault}" for sweep in self.sweeps for fault in sweep.faults]
        return tuple(found)

    def against(self, node: str) -> tuple[str, ...]:
        """Why a node must not be certified after this run; empty where it may.

        A node needs a good collective that it took part in, and no bad one. A fault on a path keeps the gate shut, but
        not the nodes at its ends. A fault that was not traced keeps out every node that it may be.
        """
        if node not in self.nodes:
            return ("took no part in the fabric's tests",)
        if self.state is State.PASS:
            return ()
        if self.state is not State.FAIL:
            return (f"the fabric's tests ended as {self.state.value}: {self.reason or 'no reason was given'}",)
        if not self.findings and all(sweep.ok for sweep in self.sweeps):
            return (f"the fabric failed: {self.reason or 'no fault was traced, so it may be any node'}",)
        found = [
            f"fabric, {finding.named}: {finding.evidence}"
            for finding in self.findings
            if node in finding.nodes or (not finding.nodes and finding.kind not in BETWEEN)
        ]
        mine = [sweep for sweep in self.sweeps if node in sweep.nodes]
        found += [f"{sweep.op}: {fault}" for sweep in mine for fault in sweep.faults]
        return tuple(found) if found or mine else ("no collective was run with it",)
