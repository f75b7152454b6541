"""Groups of like nodes."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from spec.schema.base import Declared, Gbps, Name, Text


class Role(StrEnum):
    """What a node is for. A node may have several roles."""

    CONTROL = "control"
    """Runs the scheduler's controller and serves time."""
    STORAGE = "storage"
    """Runs monitors, metadata servers and disks of the parallel filesystem."""
    COMPUTE = "compute"
    """Has GPUs, runs jobs, joins the pool."""


class MachineKind(StrEnum):
    """What a node is made of."""

    HOST = "host"
    VM = "vm"
    CONTAINER = "container"


class Capability(StrEnum):
    """What a control may need of a node that not every kind of machine has."""

    KERNEL = "kernel"
    """A kernel of its own: modules, kernel log, kernel version, time since boot."""
    RDMA = "rdma"
    BONDING = "bonding"
    VLAN = "vlan"
    CLOCK = "clock"
    """A clock that it sets itself."""
    LIMITS = "limits"
    """Hard limits (locked memory, open files) of its own rather than its host's."""
    PROCESSORS = "processors"
    """Processors that no other machine computes on."""


class Gpus(Declared):
    """The GPUs of each node of a group."""

    model: Text
    """The product name that NVML gives, as in `NVIDIA H100 80GB HBM3`."""
    count: Annotated[int, Field(ge=1, le=32)]
    memory_gib: Annotated[int, Field(ge=1)]
    nvlinks: Annotated[int, Field(ge=0, le=36)] = 0
    """NVLink links of each GPU."""
    nvlink_gbps: Gbps | None = None
    """Bandwidth of one GPU's NVLinks in one direction, all together."""


class Nics(Declared):
    """Network ports of each node, by plane. `adapters` names the physical adapter that carries each plane."""

    fabric: Annotated[int, Field(ge=0, le=16)] = 0
    storage: Annotated[int, Field(ge=1, le=8)] = 2
    management: Annotated[int, Field(ge=1, le=8)] = 1
    management_adapter: Name = "onboard"
    fabric_adapter: Name = "fabric"
    rdma_devices: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")], ...] = ()
    """The verbs devices of the rails, in the rails' order, as in `mlx5_0`. None where the machines differ in them."""


class Racking(StrEnum):
    """How a group's nodes are put into its racks."""

    SPREAD = "spread"
    """Node i stands in rack i mod the number of racks."""
    FILL = "fill"
    """One rack after the other, each with an equal share."""


class NodeGroup(Declared):
    """`count` like nodes, named `NAME-0`, `NAME-1`, …"""

    name: Name
    count: Annotated[int, Field(ge=1, le=100_000)]
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    machine: MachineKind = MachineKind.HOST
    cpus: Annotated[int, Field(ge=1)] = 1
    memory_gib: Annotated[float, Field(gt=0)] = 1
    disk_gib: Annotated[int, Field(ge=1)] = 20
    gpus: Gpus | None = None
    nics: Nics = Nics()
    racks: Annotated[tuple[Name, ...], Field(min_length=1)] = ("rack-0",)
    racking: Racking = Racking.SPREAD
    kw: Annotated[float, Field(gt=0, le=200)] | None = None
    """The most power that one node draws, kW, from its data sheet. Lab machines draw none of their own."""

    def rack(self, index: int) -> str:
        """Where a node of the group stands."""
        if self.racking is Racking.FILL:
            return self.racks[index * len(self.racks) // self.count]
        return self.racks[index % len(self.racks)]
