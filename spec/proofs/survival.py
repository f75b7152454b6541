"""What is left of the filesystem when one thing is lost: a host, a rack, a switch, a feed, a cooling zone."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from spec.plan import ClusterPlan, Node
from spec.proofs.filesystem import domains, storage_fields
from spec.proofs.planes import links
from spec.proofs.proof import Proof
from spec.schema import Role

Losses: TypeAlias = Mapping[str, frozenset[str]]
"""What may be lost, and the storage nodes that go with it."""


def survives(plan: ClusterPlan, what: str) -> Proof:
    """Whether data can be read and written, monitors agree and metadata is served after the loss of any one `what`.

    Data needs its least copies, monitors a majority, and metadata as many servers as are active.
    """
    filesystem = plan.spec.filesystem
    losses = _LOSSES[what](plan)
    where = domains(plan)
    least = filesystem.least_copies
    majority = filesystem.monitors // 2 + 1
    worst, name, left = 1, "", {"copies": filesystem.replicas, "monitors": len(plan.placement.monitors)}
    left["metadata_servers"] = len(plan.placement.metadata_servers)
    for lost, nodes in losses.items():
        after = {
            "copies": max(0, filesystem.replicas - len({where[node] for node in nodes})),
            "monitors": sum(node not in nodes for node in plan.placement.monitors),
            "metadata_servers": sum(node not in nodes for node in plan.placement.metadata_servers),
        }
        margin = min(
            after["copies"] - least,
            after["monitors"] - majority,
            after["metadata_servers"] - filesystem.metadata_servers.active,
        )
        if not name or margin < worst:
            worst, name, left = margin, lost, after
    return Proof(
        id=f"survival.{what}",
        title=f"The filesystem survives the loss of any one {_WORDS[what]}",
        holds=bool(losses) and worst >= 0,
        numbers={
            _WORDS[what]: name or "none",
            **left,
            "copies_needed": least,
            "monitors_needed": majority,
            "active": filesystem.metadata_servers.active,
        },
        message=f"without {name} there are {left['copies']} of {filesystem.replicas} copies (needs {least}), "
        f"{left['monitors']} monitors (needs {majority}), {left['metadata_servers']} metadata servers "
        f"(needs {filesystem.metadata_servers.active})"
        if losses
        else f"no storage node depends on a {_WORDS[what]}: there is none",
        advice=_ADVICE[what],
        fields=(
            *_BLAMED[what],
            *("filesystem.replicas", "filesystem.failure_domain", "filesystem.monitors"),
            *("filesystem.metadata_servers.active", "filesystem.metadata_servers.standby"),
            *storage_fields(plan),
            "facility.racks",
            *(_wiring(plan) if what == "switch" else ()),
        ),
    )


def _wiring(plan: ClusterPlan) -> tuple[str, ...]:
    return tuple(f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in ("nics.storage", "machine"))


def _hosts(plan: ClusterPlan) -> Losses:
    return {node.name: frozenset({node.name}) for node in plan.with_role(Role.STORAGE)}


def _racks(plan: ClusterPlan) -> Losses:
    return _together((node.rack, node) for node in plan.with_role(Role.STORAGE))


def _cooling(plan: ClusterPlan) -> Losses:
    zones = {rack.name: rack.cooling_zone for rack in plan.spec.facility.racks}
    return _together((zones[node.rack], node) for node in plan.with_role(Role.STORAGE))


def _pdus(plan: ClusterPlan) -> Losses:
    """Nodes whose rack has no other PDU; the loss of one that feeds none alone takes nothing with it."""
    feeds = {rack.name: set(rack.pdus) for rack in plan.spec.facility.racks}
    return {
        pdu.name: frozenset(node.name for node in plan.with_role(Role.STORAGE) if feeds[node.rack] == {pdu.name})
        for pdu in plan.spec.facility.pdus
    }


def _upses(plan: ClusterPlan) -> Losses:
    behind = {pdu.name: pdu.ups for pdu in plan.spec.facility.pdus}
    feeds = {rack.name: {behind[pdu] for pdu in rack.pdus} for rack in plan.spec.facility.racks}
    return {
        ups: frozenset(node.name for node in plan.with_role(Role.STORAGE) if feeds[node.rack] == {ups})
        for ups in dict.fromkeys(behind.values())
    }


def _switches(plan: ClusterPlan) -> Losses:
    """Storage switches, and the nodes whose every link ends on them: node i's link k ends on switch (i + k) mod n."""
    count = plan.spec.networks.storage.switches
    found: dict[str, set[str]] = {f"storage-switch-{i}": set() for i in range(count)}
    for number, node in enumerate(plan.nodes):
        interface = node.interface("storage")
        if node.has(Role.STORAGE) and interface is not None:
            ends = {(number + link) % count for link in range(links(interface))}
            if len(ends) == 1:
                found[f"storage-switch-{ends.pop()}"].add(node.name)
    return {name: frozenset(nodes) for name, nodes in found.items()}


def _together(pairs: Iterable[tuple[str, Node]]) -> Losses:
    found: dict[str, set[str]] = {}
    for name, node in pairs:
        found.setdefault(name, set()).add(node.name)
    return {name: frozenset(nodes) for name, nodes in found.items()}


_LOSSES = {
    "host": _hosts,
    "rack": _racks,
    "switch": _switches,
    "pdu": _pdus,
    "ups": _upses,
    "cooling": _cooling,
}
_WORDS = {
    "host": "host",
    "rack": "rack",
    "switch": "storage switch",
    "pdu": "PDU",
    "ups": "UPS",
    "cooling": "cooling zone",
}
_ADVICE = {
    "host": "use three copies, three or five monitors, and a standby metadata server on another host",
    "rack": "spread storage nodes over more racks, and set filesystem.failure_domain to rack",
    "switch": "give storage nodes two links, on two switches",
    "pdu": "feed each rack of storage nodes from two PDUs",
    "ups": "feed each rack of storage nodes from two PDUs behind different UPSes",
    "cooling": "spread storage nodes over racks in more cooling zones",
}
_BLAMED: dict[str, tuple[str, ...]] = {
    "host": ("filesystem.replicas",),
    "rack": ("filesystem.failure_domain",),
    "switch": ("networks.storage.switches", "networks.storage.bond.links"),
    "pdu": ("facility.racks", "facility.pdus"),
    "ups": ("facility.racks", "facility.pdus"),
    "cooling": ("facility.racks",),
}
PROOFS: tuple[Callable[[ClusterPlan], Proof], ...] = tuple(partial(survives, what=what) for what in _LOSSES)
