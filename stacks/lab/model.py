"""What the lab is made of, as data: one network, and machines with ports on its bridges."""

import hashlib
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from spec.folders import state
from spec.plan import ClusterPlan, Interface, Node
from spec.schema import MachineKind
from spec.schema.base import Name

GATEWAY = 1
"""The lab's own number on the management plane: where the namespace reaches the nodes from."""

LinkName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=15)]
"""The kernel's limit for the name of an interface is 15 bytes."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}(-[0-9a-f]{8,64})?$")]
"""Of an image; a virtual machine's has two parts: the node image's, and its own, which covers both recipes."""


class Part(BaseModel):
    """A part of the lab: immutable, and nothing in it but what is declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Bridge(Part):
    """The switch of one plane. Its own MAC is fixed: a MAC that changes leaves stale neighbours behind."""

    plane: LinkName
    mac: str
    mtu: int
    address: IPv4Interface | None = None


class Network(Part):
    """All bridges of a lab, in one namespace, so that none of its addresses exists on the host."""

    stack: Name
    bridges: tuple[Bridge, ...]


class Port(Part):
    """A machine's interface and the bridge it is plugged into. `address` is set only where the lab sets it."""

    name: LinkName
    plane: LinkName
    mac: str
    mtu: int
    address: IPv4Interface | None = None


class Machine(Part):
    """One machine. `image` and `vendor` are the digests of its image and of the vendor package repository."""

    stack: Name
    name: Name
    kind: MachineKind
    image: Digest
    vendor: Digest | None
    memory_mib: int
    cpus: int = 1
    disk_gib: int = 20
    """CPUs and disk are a virtual machine's own; a container has its host's."""
    ports: tuple[Port, ...]

    @property
    def address(self) -> IPv4Interface:
        """Where the machine is reached. Raises LookupError where no port has an address."""
        for port in self.ports:
            if port.address:
                return port.address
        raise LookupError(f"{self.name} has no port with an address on the management plane")

    @property
    def node_image(self) -> str:
        """The digest of the node image: a virtual machine's own image is made of the same recipe."""
        return self.image.partition("-")[0]


def network(stack: str, plan: ClusterPlan) -> Network:
    """A bridge for each subnet of the plan; only management has an address, the first of its subnet."""
    return Network(
        stack=stack,
        bridges=tuple(
            Bridge(
                plane=subnet.plane,
                mac=_mac(stack, subnet.plane),
                mtu=subnet.mtu,
                address=IPv4Interface((int(subnet.network.network_address) + GATEWAY, subnet.network.prefixlen))
                if subnet.plane == "management"
                else None,
            )
            for subnet in plan.subnets
        ),
    )


def machine(stack: str, node: Node, image: str, vendor: str | None) -> Machine:
    """A node's machine. Its other addresses than management's are for the roles to set."""
    return Machine(
        stack=stack,
        name=node.name,
        kind=node.machine,
        image=image,
        vendor=vendor,
        memory_mib=int(node.memory_gib * 1024),
        cpus=node.cpus,
        disk_gib=node.disk_gib,
        ports=tuple(port for each in node.interfaces for port in _ports(each)),
    )


def _ports(interface: Interface) -> list[Port]:
    """What is plugged in for an interface: the links of a bond, the port that a VLAN is on, or itself."""
    name, plane, mtu = interface.name, interface.plane, interface.mtu
    if interface.links:
        return [Port(name=each, plane=plane, mac=_mac(interface.mac, each), mtu=mtu) for each in interface.links]
    if interface.vlan:
        return [Port(name=f"{name}p0", plane=plane, mac=interface.mac, mtu=mtu)]
    address = interface.address if plane == "management" else None
    return [Port(name=name, plane=plane, mac=interface.mac, mtu=mtu, address=address)]


def own_digest(image: str) -> str:
    """The part of an image's digest that says on its own which image it is."""
    return image.rpartition("-")[2]


def namespace(stack: str, node: str | None = None) -> str:
    """The name of the lab's network namespace, or of one machine's. No stack's name contains the dot between them."""
    return f"muster-{stack}.{node}" if node else f"muster-{stack}"


def cgroup(stack: str, node: str) -> str:
    """The name of a machine's control group, directly below each hierarchy's root."""
    return f"muster-{stack}.{node}"


def machines_folder(stack: str) -> Path:
    """Where the machines of a stack are kept, a folder each."""
    return state(stack) / "machines"


def runc_folder(stack: str) -> Path:
    """Where runc remembers this stack's containers, apart from all others on the host."""
    return state(stack) / "runc"


def _mac(*names: str) -> str:
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
