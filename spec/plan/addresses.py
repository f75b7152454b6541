"""Names, subnets, addresses and MACs of every node on every plane."""

import hashlib
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv4Network

from spec.plan.model import Interface, Subnet
from spec.schema import Capability, Cluster, FabricKind, NodeGroup, Plane

FIRST_HOST = 11
"""The first node's number in each subnet; those below are for gateways, switches and services."""

INTERFACES = {"management": "mgmt0", "storage": "stor0"}
"""What a node calls its interface on each plane that is not a rail."""


def subnets(cluster: Cluster) -> tuple[Subnet, ...]:
    """Management, storage and one subnet a rail, all rails of equal size within the fabric's CIDR."""
    fabric = cluster.networks.fabric
    rails = fabric.cidr.subnets(prefixlen_diff=(fabric.rails - 1).bit_length())
    return (
        _subnet("management", cluster.networks.management),
        _subnet("storage", cluster.networks.storage),
        *(
            Subnet(plane=rail(i), network=network, mtu=fabric.mtu, vlan=fabric.vlan, link_gbps=fabric.link_gbps)
            for i, network in zip(range(fabric.rails), rails, strict=False)
        ),
    )


def rail(index: int) -> str:
    """The plane name of a rail."""
    return f"rail-{index}"


def _subnet(name: str, plane: Plane) -> Subnet:
    return Subnet(plane=name, network=plane.cidr, mtu=plane.mtu, vlan=plane.vlan, link_gbps=plane.link_gbps)


def interfaces(
    cluster: Cluster, group: NodeGroup, name: str, number: int, nets: Sequence[Subnet], able: frozenset[Capability]
) -> tuple[Interface, ...]:
    """A node's interfaces. `number` counts all nodes from 0 and is the same host number in every subnet.

    Where a subnet has no room for that number the address lies outside it: the proof `addresses.room` says so.
    """
    management, storage, *rails = nets
    networks = cluster.networks
    found = [
        _bonded(cluster, name, number, management, networks.management, group.nics.management, able),
        _bonded(cluster, name, number, storage, networks.storage, group.nics.storage, able),
    ]
    verbs = Capability.RDMA in able and networks.fabric.kind is not FabricKind.TCP
    for index, subnet in enumerate(rails[: group.nics.fabric]):
        found.append(_interface(cluster, name, number, subnet, f"rail{index}", able, rdma=verbs))
    return tuple(found)


def _bonded(
    cluster: Cluster, name: str, number: int, subnet: Subnet, plane: Plane, nics: int, able: frozenset[Capability]
) -> Interface:
    """The interface on a plane: a bond of as many links as are declared, wired, and possible."""
    short = INTERFACES[subnet.plane]
    count = min(plane.bond.links, nics)
    if count < 2 or Capability.BONDING not in able:
        return _interface(cluster, name, number, subnet, short, able)
    links = tuple(f"{short}p{i}" for i in range(count))
    return _interface(cluster, name, number, subnet, short, able, links=links, bond=plane.bond.mode)


def _interface(
    cluster: Cluster, name: str, number: int, subnet: Subnet, short: str, able: frozenset[Capability], **shape: object
) -> Interface:
    return Interface.model_validate(
        {
            "plane": subnet.plane,
            "name": short,
            "address": _address(subnet.network, number),
            "mac": _mac(cluster.name, name, short),
            "mtu": subnet.mtu,
            "vlan": subnet.vlan if Capability.VLAN in able else None,
            **shape,
        }
    )


def _address(network: IPv4Network, number: int) -> IPv4Interface:
    return IPv4Interface(((int(network.network_address) + FIRST_HOST + number) % 2**32, network.prefixlen))


def _mac(cluster: str, node: str, interface: str) -> str:
    """A locally administered address that depends on nothing but the names, so that a rebuilt node keeps its own."""
    digest = hashlib.sha256(f"{cluster}/{node}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
