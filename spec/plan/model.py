"""What follows from a spec: every node, address, link, port and number that the rest of Muster works from.

A plan is data. Nothing in it is chosen twice: a number that two rooms need is here once.
"""

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


class Switches(Derived):
    """The fabric's switches."""

    leaves: tuple[Leaf, ...]
    spines: tuple[str, ...]


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


class ClusterPlan(Derived):
    """Everything that follows from a spec."""

    spec: Cluster
    digest: str
    """SHA-256 of the spec's canonical JSON, hexadecimal: what certificates carry."""
    subnets: tuple[Subnet, ...]
    nodes: tuple[Node, ...]
    switches: Switches
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
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(each.name for each in self.nodes[:8])
        raise LookupError(f"no node {name!r} in {self.name}: its nodes are {known}")

    def with_role(self, role: Role) -> tuple[Node, ...]:
        """The nodes that have a role, in the plan's order."""
        return tuple(node for node in self.nodes if node.has(role))

    def subnet(self, plane: PlaneName) -> Subnet:
        """The subnet of a plane. Raises LookupError where there is none."""
        for subnet in self.subnets:
            if subnet.plane == plane:
                return subnet
        raise LookupError(f"no plane {plane!r} in {self.name}")


Expectations: TypeAlias = dict[str, JsonValue]
"""What the spec expects of one node, by dotted name, as in `gpu.count`. See `spec.plan.expectations`."""
