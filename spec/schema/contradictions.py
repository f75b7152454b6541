"""What no single field can tell: names declared twice, and names that nothing declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec.schema.cluster import Cluster


@dataclass(frozen=True)
class Contradiction:
    """One field that does not agree with another; `field` is written as in `nodes[0].racks[1]`."""

    field: str
    what: str
    advice: str
    against: str
    """The field that it contradicts."""
    instead: str | list[str]
    """A value without the contradiction: not what the author meant, but enough to look at the rest of the spec."""

    def __str__(self) -> str:
        return f"{self.field}: {self.what}; {self.advice}"


def contradictions(cluster: Cluster) -> tuple[Contradiction, ...]:
    """Every contradiction in a spec whose fields are good by themselves, in the spec's order."""
    return (*_networks(cluster), *_nodes(cluster), *_facility(cluster), *_exemptions(cluster))


def _networks(cluster: Cluster) -> Iterator[Contradiction]:
    fabric = cluster.networks.fabric
    bits = (fabric.rails - 1).bit_length()
    if fabric.cidr.prefixlen + bits > 30:
        yield Contradiction(
            "networks.fabric.cidr",
            f"{fabric.cidr} cannot be split into {fabric.rails} rails",
            f"use a prefix of /{30 - bits} or shorter",
            "networks.fabric.rails",
            "10.0.0.0/8",
        )


def _nodes(cluster: Cluster) -> Iterator[Contradiction]:
    yield from _twice("nodes", "node group", (group.name for group in cluster.nodes))
    racks = {rack.name for rack in cluster.facility.racks}
    for i, group in enumerate(cluster.nodes):
        yield from _undeclared(f"nodes[{i}].racks", "rack", group.racks, racks, "facility.racks")
        if len(set(group.roles)) < len(group.roles):
            roles = list(dict.fromkeys(group.roles))
            yield Contradiction(
                f"nodes[{i}].roles", "a role is given twice", "give each role once", f"nodes[{i}].roles", [*roles]
            )
        devices = group.nics.rdma_devices
        if devices and len(devices) != group.nics.fabric:
            yield Contradiction(
                f"nodes[{i}].nics.rdma_devices",
                f"{len(devices)} devices, but {group.nics.fabric} fabric NICs",
                "name one device for each NIC, or none",
                f"nodes[{i}].nics.fabric",
                [],
            )


def _facility(cluster: Cluster) -> Iterator[Contradiction]:
    facility = cluster.facility
    yield from _twice("facility.racks", "rack", (rack.name for rack in facility.racks))
    yield from _twice("facility.pdus", "pdu", (pdu.name for pdu in facility.pdus))
    pdus = {pdu.name for pdu in facility.pdus}
    for i, rack in enumerate(facility.racks):
        yield from _undeclared(f"facility.racks[{i}].pdus", "pdu", rack.pdus, pdus, "facility.pdus")


def _exemptions(cluster: Cluster) -> Iterator[Contradiction]:
    yield from _twice("waivers", "waiver", (waiver.id for waiver in cluster.waivers), key="id")
    yield from _twice("exceptions", "exception", (each.proof for each in cluster.exceptions), key="proof")
    if not cluster.waivers:
        return
    names = {f"{group.name}-{index}" for group in cluster.nodes for index in range(group.count)}
    for i, waiver in enumerate(cluster.waivers):
        yield from _undeclared(f"waivers[{i}].nodes", "node", waiver.nodes, names, "nodes")


def _twice(field: str, what: str, names: Iterable[str], key: str = "name") -> Iterator[Contradiction]:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            where, words = f"{field}[{i}].{key}", f"{what} {name} is declared twice"
            yield Contradiction(where, words, f"give each {what} its own", where, f"{what.replace(' ', '-')}-{i}-again")
        seen.add(name)


def _undeclared(field: str, what: str, used: Iterable[str], declared: set[str], where: str) -> Iterator[Contradiction]:
    for i, name in enumerate(used):
        if name not in declared:
            known = ", ".join(sorted(declared)[:12]) + (", …" if len(declared) > 12 else "")
            yield Contradiction(
                f"{field}[{i}]", f"no {what} {name!r}", f"{where} declares {known}", where, min(declared)
            )
