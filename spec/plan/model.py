"""What follows from a spec: every node, address, link, port and number that the rest of Muster works from.

A plan is data. Nothing in it is chosen twice: a number that two rooms need is here once.
"""

from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue

from spec.schema import BondMode, Capability, Cluster, FabricKind, Gpus, MachineKind, Role
from spec.schema.base import PortRange


class Derived(BaseModel):
    """A part of a plan: immutable, and nothing in it but what is declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


PlaneName: TypeAlias = str
"""`management`, `storage`, or `rail-0`, `rail-1`, …: one name for each network that nodes have an address on."""


class Subnet(Derived):
    """One network: a plane, or one rail of the fabric."""

    plane: PlaneName
    network: IPv4Network
    mtu: int
    vlan: int | None
    link_gbps: float


class Interface(Derived):
    """A node's place on one subnet.

    `links` are the ports below it: none where the interface is a port itself, two or more where it is a bond.
    """

    plane: PlaneName
    name: str
    address: IPv4Interface
    mac: str
    mtu: int
    vlan: int | None = None
    links: tuple[str, ...] = ()
    bond: BondMode | None = None
    rdma: bool = False


class Node(Derived):
    """One node, with everything derived for it."""

    name: str
    group: str
    index: int
    roles: tuple[Role, ...]
    machine: MachineKind
    capabilities: frozenset[Capability]
    cpus: int
    memory_gib: float
    disk_gib: int
    gpus: Gpus | None
    rack: str
    interfaces: tuple[Interface, ...]

    def has(self, role: Role) -> bool:
        """Whether the node has a role."""
        return role in self.roles

    def interface(self, plane: PlaneName) -> Interface | None:
        """The node's interface on a plane, or none."""
        return next((each for each in self.interfaces if each.plane == plane), None)

    def address(self, plane: PlaneName = "management") -> IPv4Address:
        """The node's address on a plane. Raises LookupError where it has none."""
        found = self.interface(plane)
        if found is None:
            raise LookupError(f"{self.name} has no interface on {plane}")
        return found.address.ip


class Leaf(Derived):
    """A leaf switch of the fabric: one rail of some nodes. Bandwidths in Gb/s, in one direction."""

    name: str
    rail: int
    nodes: tuple[str, ...]
    uplinks: tuple[str, ...]
    """The spine at the other end of each uplink."""
    downlink_gbps: float
    uplink_gbps: float

    @property
    def oversubscription(self) -> float:
        """Bandwidth into the leaf over bandwidth out of it; infinite where there is none out of it."""
        return self.downlink_gbps / self.uplink_gbps if self.uplink_gbps else float("inf")


class Switches(Derived):
    """The fabric's switches."""

    leaves: tuple[Leaf, ...]
    spines: tuple[str, ...]
    blocks: int
    """How many leaves each rail has."""

    @property
    def oversubscription(self) -> float:
        """That of the worst leaf; 0 where each rail is one leaf, which nothing has to leave."""
        if self.blocks == 1 and not any(leaf.uplinks for leaf in self.leaves):
            return 0.0
        return max((leaf.oversubscription for leaf in self.leaves if leaf.nodes), default=0.0)


class TrafficClass(Derived):
    """The fabric's lossless class, in the terms of everyone who must agree on it."""

    dscp: int
    priority: int
    """The priority that hosts and switches keep lossless (PFC)."""
    switch_priority: int
    """The priority that a device which trusts DSCP gives to it by default."""
    nccl_tc: int
    """NCCL_IB_TC: the whole TOS byte."""
    pfc: tuple[int, ...]
    """PFC on or off, priority 0 to 7."""


class Placement(Derived):
    """Names of the nodes that run the filesystem's monitors and metadata servers, each in order of preference."""

    monitors: tuple[str, ...]
    metadata_servers: tuple[str, ...]


class Floor(Derived):
    """The least that a measurement must reach. Bandwidths in GB/s, 10^9 bytes a second."""

    gigabytes: float
    capacity_gigabytes: float
    fraction: float
    source: str
    """Where it comes from, for people: `82 % of 8 rails × 400 Gb/s = 328 GB/s`."""

    @property
    def gbps(self) -> float:
        """The same in Gb/s, 10^9 bits a second."""
        return self.gigabytes * 8


class FirewallRule(Derived):
    """One thing that a node lets in. Everything else is dropped.

    Outgoing traffic is free; answers to it come back. RDMA does not pass the host's firewall: planes are apart by
    VLAN or PKey.
    """

    purpose: str
    protocol: Literal["tcp", "udp", "icmp", "any"]
    ports: tuple[PortRange, ...] = ()
    interface: str | None = None
    sources: tuple[IPv4Network, ...]


class JobEnvironment(Derived):
    """What a training job sets, derived from the fabric. `sources` says why for each variable."""

    variables: dict[str, str]
    sources: dict[str, str]
    unset: dict[str, str] = {}
    """Variables that are left alone on purpose, and why."""


class ClusterPlan(Derived):
    """Everything that follows from a spec."""

    spec: Cluster
    digest: str
    """SHA-256 of the spec's canonical JSON, hexadecimal: what certificates carry."""
    subnets: tuple[Subnet, ...]
    nodes: tuple[Node, ...]
    switches: Switches
    lossless: TrafficClass | None
    placement: Placement
    job: JobEnvironment

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.spec.name

    @property
    def administrators(self) -> tuple[IPv4Network, ...]:
        """Networks, besides management, from which administrators log in."""
        return self.spec.site.administrators

    @property
    def fabric_kind(self) -> FabricKind:
        """What carries the GPUs' traffic."""
        return self.spec.networks.fabric.kind

    def node(self, name: str) -> Node:
        """The node of a name. Raises LookupError, with the names there are, where there is none."""
        if found := self._by_name.get(name):
            return found
        known = ", ".join(each.name for each in self.nodes[:8])
        raise LookupError(f"no node {name!r} in {self.name}: its nodes are {known}")

    def with_role(self, role: Role) -> tuple[Node, ...]:
        """The nodes that have a role, in the plan's order."""
        return self._by_role[role]

    @cached_property
    def addresses(self) -> dict[PlaneName, dict[str, str]]:
        """The address of every node on every plane, by plane and node name."""
        found: dict[PlaneName, dict[str, str]] = {subnet.plane: {} for subnet in self.subnets}
        for node in self.nodes:
            for each in node.interfaces:
                found[each.plane][node.name] = str(each.address.ip)
        return found

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _by_role(self) -> dict[Role, tuple[Node, ...]]:
        return {role: tuple(node for node in self.nodes if node.has(role)) for role in Role}

    def subnet(self, plane: PlaneName) -> Subnet:
        """The subnet of a plane. Raises LookupError where there is none."""
        for subnet in self.subnets:
            if subnet.plane == plane:
                return subnet
        raise LookupError(f"no plane {plane!r} in {self.name}")


Expectations: TypeAlias = dict[str, JsonValue]
"""What the spec expects of one node, by dotted name, as in `gpu.count`. See `spec.plan.expectations`."""
