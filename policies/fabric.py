"""What was measured of the fabric: pair tests, sweeps of the collective job, and what they say of nodes and paths.

Bandwidths are GB/s (10^9 bytes a second) where named `gbs`, Gb/s where named `gbps`; sizes are bytes.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from policies.verdict import State


class Part(BaseModel):
    """A part of a fabric result: immutable, nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pair(Part):
    """One bandwidth test between two nodes over one rail."""

    a: str
    b: str
    rail: int
    tool: str
    """`ib_write_bw` over RDMA, `iperf3` over TCP."""
    gbps: Annotated[float, Field(ge=0)] | None
    """None where the test gave no number; `problem` then says why."""
    floor_gbps: Annotated[float, Field(ge=0)]
    problem: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it was measured and reached its floor."""
        return self.gbps is not None and self.gbps >= self.floor_gbps


class Point(Part):
    """One message size of a sweep. `times_s` has a time for each repeat: the slowest rank's, for one call."""

    size: Annotated[int, Field(gt=0)]
    times_s: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    algbw_gbs: Annotated[float, Field(ge=0)]
    busbw_gbs: Annotated[float, Field(ge=0)]
    wrong: Annotated[int, Field(ge=0)]
    """Elements that differ from the exact result, over all ranks and repeats."""


class Sweep(Part):
    """One collective operation over sizes: the NCCL job's result on one rail, or on all rails together."""

    op: str
    backend: str
    """`nccl` or `gloo`."""
    device: str
    """`cuda` or `cpu`."""
    rail: int | None
    ranks: int
    nodes: tuple[str, ...]
    points: tuple[Point, ...]
    floor_gbs: Annotated[float, Field(ge=0)]
    plateau_gbs: Annotated[float, Field(ge=0)] | None
    """Median bus bandwidth over the large sizes, where latency no longer matters; None where they were not reached."""
    state: State
    reason: str = ""


class Subject(StrEnum):
    """What a finding names."""

    NODE = "node"
    RAIL = "rail"
    PATH = "path"
    INCONCLUSIVE = "inconclusive"


class Finding(Part):
    """What the measurements say is at fault."""

    subject: Subject
    name: str
    """`gpu-3`, `rail-1`, `gpu-3 rail-1`, `leaf-0 to leaf-2`, or empty where inconclusive."""
    nodes: tuple[str, ...]
    """Nodes that must not be certified because of it."""
    evidence: tuple[str, ...]


class FabricResult(Part):
    """The fabric part of one examination."""

    fabric_kind: str
    notes: tuple[str, ...]
    """What is simulated or missing, in words: `rails carry TCP: function, not performance`."""
    pairs: tuple[Pair, ...]
    sweeps: tuple[Sweep, ...]
    findings: tuple[Finding, ...]
    state: State
    reason: str = ""
