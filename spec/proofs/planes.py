"""The storage and the management plane: ports, bandwidth, and the loss of a link or switch."""

from collections.abc import Callable
from functools import partial
from math import ceil

from spec.plan import ClusterPlan
from spec.plan.model import Interface
from spec.proofs.proof import Proof
from spec.schema import Plane


def links(interface: Interface) -> int:
    """Links of a node on a plane: those of its bond, or one."""
    return max(1, len(interface.links))


def _plane(plan: ClusterPlan, name: str) -> tuple[Plane, list[tuple[str, int]]]:
    """A plane and how many links each node has on it."""
    plane: Plane = getattr(plan.spec.networks, name)
    found = ((node.name, node.interface(name)) for node in plan.nodes)
    return plane, [(node, links(interface)) for node, interface in found if interface]


def _fields(plan: ClusterPlan, name: str, *first: str) -> tuple[str, ...]:
    plane = f"networks.{name}"
    keys = ("count", f"nics.{name}", "machine")
    nodes = tuple(f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in keys)
    return tuple(dict.fromkeys((*first, f"{plane}.switches", f"{plane}.bond.links", *nodes)))


def switch_ports(plan: ClusterPlan, name: str) -> Proof:
    """Whether the switches have a port for each node's links, spread evenly."""
    plane, wired = _plane(plan, name)
    total = sum(count for _, count in wired)
    each = ceil(total / plane.switches)
    return Proof(
        id=f"{name}.switch_ports",
        title=f"Every {name} switch has a port for each link",
        holds=each <= plane.switch_ports,
        numbers={"links": total, "switches": plane.switches, "each": each, "ports": plane.switch_ports},
        message=f"{total} links over {plane.switches} switches need {each} of the {plane.switch_ports} ports of each",
        advice="add switches, or use switches with more ports",
        fields=_fields(plan, name, f"networks.{name}.switch_ports"),
    )


def redundancy(plan: ClusterPlan, name: str) -> Proof:
    """Whether every node keeps a link when one link or one switch is lost."""
    plane, wired = _plane(plan, name)
    node, fewest = min(wired, key=lambda each: each[1])
    blamed = f"networks.{name}.switches" if plane.switches < 2 else f"networks.{name}.bond.links"
    return Proof(
        id=f"{name}.redundancy",
        title=f"Every node has two {name} links, on two switches",
        holds=fewest >= 2 and plane.switches >= 2,
        numbers={"node": node, "links": fewest, "switches": plane.switches},
        message=f"{node} has {fewest} link{'s' * (fewest > 1)}, on {min(fewest, plane.switches)} of "
        f"{plane.switches} switch{'es' * (plane.switches > 1)}",
        advice=f"give networks.{name} two switches, bond.links 2, and every node nics.{name} 2",
        fields=_fields(plan, name, blamed),
    )


def oversubscription(plan: ClusterPlan, name: str) -> Proof:
    """Bandwidth into each switch over bandwidth out of it, against the plane's limit.

    Switches need no uplinks where every node has a link to every one of them.
    """
    plane, wired = _plane(plan, name)
    down = ceil(sum(count for _, count in wired) / plane.switches) * plane.link_gbps
    apart = min(count for _, count in wired) < plane.switches
    up = plane.uplink_gbps or 0.0
    ratio = down / up if up else float("inf") if apart else 0.0
    return Proof(
        id=f"{name}.oversubscription",
        title=f"No {name} switch is oversubscribed beyond the limit",
        holds=ratio <= plane.oversubscription,
        numbers={
            "down_gbps": down,
            "up_gbps": up,
            "ratio": round(ratio, 4) if ratio < float("inf") else "none leaves it",
            "limit": plane.oversubscription,
        },
        message="every node is on every switch: none needs an uplink"
        if not up and not apart
        else f"{plane.switches} switches and no uplink: nodes on different ones cannot reach each other"
        if not up
        else f"{down:g} Gb/s into each switch and {up:g} out of it: {ratio:.3g}, limit {plane.oversubscription:g}",
        advice=f"raise networks.{name}.uplink_gbps, add switches, or raise networks.{name}.oversubscription",
        fields=_fields(
            plan,
            name,
            *(f"networks.{name}.{key}" for key in ("uplink_gbps", "oversubscription", "link_gbps")),
        ),
    )


def management_adapter(plan: ClusterPlan) -> Proof:
    """Whether management leaves a node by another adapter than the fabric.

    A reload of the fabric's driver takes all ports of its adapters down, and the node is lost, even where the port is
    bonded (network-operator#2176, #2258).
    """
    wrong = [
        i
        for i, group in enumerate(plan.spec.nodes)
        if group.nics.fabric and group.nics.management_adapter == group.nics.fabric_adapter
    ]
    blamed = wrong[0] if wrong else 0
    adapter = plan.spec.nodes[blamed].nics.management_adapter
    keys = ("nics.management_adapter", "nics.fabric_adapter", "nics.fabric")
    every = [f"nodes[{i}].{key}" for i in (blamed, *range(len(plan.spec.nodes))) for key in keys]
    return Proof(
        id="management.adapter",
        title="Management is not on the fabric's adapter",
        holds=not wrong,
        numbers={"groups_wrong": len(wrong), "adapter": adapter},
        message=f"management and fabric share the adapter {adapter}" if wrong else "on adapters apart",
        advice="a reload of the fabric's driver would cut the node off: connect management to another adapter",
        fields=tuple(dict.fromkeys(every)),
    )


PROOFS: tuple[Callable[[ClusterPlan], Proof], ...] = (
    *(
        partial(proof, name=name)
        for name in ("storage", "management")
        for proof in (switch_ports, redundancy, oversubscription)
    ),
    management_adapter,
)
