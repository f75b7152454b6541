"""Names, subnets, addresses and MACs of every node on every plane."""

import hashlib
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv4Network

from spec.plan.model import Interface, Subnet
from spec.schema import Capability, Cluster, FabricKind, NodeGroup, Plane

FIRST_HOST = 11
"""The first node's number in each subnet; those below are for gateways, switches and services."""


def subnets(cluster: Cluster) -> tuple[Subnet, ...]:
    """Management, storage and one subnet a rail, all rails of equal size within the fabric's CIDR.

    Raises ValueError where the fabric's CIDR is too small to be split.
    """
    fabric = cluster.networks.fabric
    bits = (fabric.rails - 1).bit_length()
    if fabric.cidr.prefixlen + bits > 30:
        raise ValueError(f"{fabric.cidr} cannot be split into {fabric.rails} rails; use a shorter prefix")
    rails = list(fabric.cidr.subnets(prefixlen_diff=bits))[: fabric.rails]
    planes = {"management": cluster.networks.management, "storage": cluster.networks.storage}
    return (
        *(_plane(name, plane) for name, plane in planes.items()),
        *(
            Subnet(plane=rail(i), network=network, mtu=fabric.mtu, vlan=fabric.vlan, link_gbps=fabric.link_gbps)
            for i, network in enumerate(rails)
        ),
    )


def rail(index: int) -> str:
    """The plane name of a rail."""
    return f"rail-{index}"


def _plane(name: str, plane: Plane) -> Subnet:
    return Subnet(plane=name, network=plane.cidr, mtu=plane.mtu, vlan=plane.vlan, link_gbps=plane.link_gbps)


def interfaces(
    cluster: Cluster, group: NodeGroup, name: str, number: int, nets: Sequence[Subnet], able: frozenset[Capability]
) -> tuple[Interface, ...]:
    """A node's interfaces. `number` counts all nodes from 0 and is the same host number in every subnet."""
    found = []
    for subnet in nets:
        short, links, bond = _shape(cluster, group, subnet.plane, able)
        if short is None:
            continue
        found.append(
            Interface(
                plane=subnet.plane,
                name=short,
                address=_host(subnet.network, number),
                mac=_mac(cluster.name, name, short),
                mtu=subnet.mtu,
                vlan=subnet.vlan if Capability.VLAN in able else None,
                links=links,
                bond=bond.mode if bond else None,
                rdma=subnet.plane.startswith("rail-")
                and Capability.RDMA in able
                and cluster.networks.fabric.kind is not FabricKind.TCP,
            )
        )
    return tuple(found)


def _shape(cluster: Cluster, group: NodeGroup, plane: str, able: frozenset[Capability]):  # type: ignore[no-untyped-def]
    if plane.startswith("rail-"):
        index = int(plane.removeprefix("rail-"))
        return (f"rail{index}", (), None) if index < group.nics.fabric else (None, (), None)
    short = {"management": "mgmt0", "storage": "stor0"}[plane]
    declared: Plane = getattr(cluster.networks, plane)
    count = min(declared.bond.links, getattr(group.nics, plane))
    if count < 2 or Capability.BONDING not in able:
        return short, (), None
    return short, tuple(f"{short}p{i}" for i in range(count)), declared.bond


def _host(network: IPv4Network, number: int) -> IPv4Interface:
    offset = FIRST_HOST + number
    if offset >= network.num_addresses - 1:
        raise ValueError(f"{network} has no room for node number {number + 1}; use a shorter prefix")
    return IPv4Interface((int(network.network_address) + offset, network.prefixlen))


def _mac(cluster: str, node: str, interface: str) -> str:
    """A locally administered address that depends on nothing but the names, so that a rebuilt node keeps its own."""
    digest = hashlib.sha256(f"{cluster}/{node}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
