"""The three planes: a fabric for the GPUs, a storage network, a management network."""

from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field

from spec.schema.base import Declared, Gbps, Mtu, PortRange


class FabricKind(StrEnum):
    """What carries the GPUs' traffic."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    EFA = "efa"
    TCP = "tcp"
    """No RDMA at all: lab machines that share their host's kernel."""


class BondMode(StrEnum):
    """Linux bonding modes that survive the loss of a link."""

    LACP = "802.3ad"
    ACTIVE_BACKUP = "active-backup"


class Lossless(Declared):
    """The lossless traffic class of a RoCE fabric. Everything else about it (PFC, traffic class) follows from here."""

    dscp: Annotated[int, Field(ge=0, le=63)] = 26
    priority: Annotated[int, Field(ge=0, le=7)] = 3


class Fabric(Declared):
    """The GPUs' own network: `rails` parallel planes of leaves joined by spines.

    `leaves` and `spines` count all rails together; a leaf serves one rail. `uplinks` are each leaf's links to spines.
    """

    kind: FabricKind
    rails: Annotated[int, Field(ge=1, le=16)]
    cidr: IPv4Network
    link_gbps: Gbps
    mtu: Mtu = 4200
    leaves: Annotated[int, Field(ge=1)]
    spines: Annotated[int, Field(ge=0)] = 0
    leaf_ports: Annotated[int, Field(ge=1)]
    spine_ports: Annotated[int, Field(ge=0)] = 0
    uplinks: Annotated[int, Field(ge=0)] = 0
    uplink_gbps: Gbps | None = None
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """The most bandwidth into a leaf over bandwidth out of it that the design may have."""
    degraded_oversubscription: Annotated[float, Field(ge=1)] | None = None
    """The same while any one spine is lost. None asks only that leaves still reach each other then."""
    switch_mtu: Mtu = 9216
    """Largest IP packet that the switches carry."""
    floor_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of its capacity that the fabric must reach; by default `spec.plan.thresholds` gives it by kind."""
    lossless: Lossless | None = None
    pkey: Annotated[int, Field(ge=1, le=0x7FFF)] | None = None
    vlan: Annotated[int, Field(ge=1, le=4094)] | None = None
    job_ports: PortRange = PortRange("50000-51000")
    """TCP ports that training jobs (NCCL's and gloo's sockets) use: the nodes' ephemeral range and the firewall's."""


class Bond(Declared):
    """Two or more links that act as one."""

    mode: BondMode = BondMode.LACP
    links: Annotated[int, Field(ge=1, le=8)] = 2


class Plane(Declared):
    """A network that every node is on, on `switches` like switches.

    Each link of a node ends on another switch, as far as there are switches.
    """

    cidr: IPv4Network
    link_gbps: Gbps
    mtu: Mtu = 1500
    vlan: Annotated[int, Field(ge=1, le=4094)] | None = None
    bond: Bond = Bond()
    switches: Annotated[int, Field(ge=1)] = 2
    switch_ports: Annotated[int, Field(ge=1)] = 64
    """Ports of each switch that nodes can use; those of its uplinks are apart."""
    switch_mtu: Mtu = 9216
    """Largest IP packet that the switches carry."""
    uplink_gbps: Annotated[float, Field(gt=0, le=102_400)] | None = None
    """All uplinks of one switch together, in one direction; the most that a switch chip of 102.4 Tb/s has."""
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """The most bandwidth into a switch over bandwidth out of it that the design may have."""


class Networks(Declared):
    """The cluster's three planes."""

    fabric: Fabric
    storage: Plane
    management: Plane
