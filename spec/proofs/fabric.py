"""Rails, leaves and spines that add up."""

from collections import Counter

from spec.plan import ClusterPlan
from spec.proofs.proof import Proof
from spec.schema import Role

_SIZE = ("networks.fabric.leaves", "networks.fabric.rails")


def rails(plan: ClusterPlan) -> Proof:
    """Whether each compute node has one fabric NIC a rail, and no other node has any."""
    want = plan.spec.networks.fabric.rails
    wrong = [
        (i, group.nics.fabric, want if Role.COMPUTE in group.roles else 0)
        for i, group in enumerate(plan.spec.nodes)
        if group.nics.fabric != (want if Role.COMPUTE in group.roles else 0)
    ]
    blamed, has, needs = wrong[0] if wrong else (0, want, want)
    every = [f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in ("nics.fabric", "roles")]
    first = f"nodes[{blamed}].nics.fabric"
    compute = Role.COMPUTE in plan.spec.nodes[blamed].roles
    return Proof(
        id="fabric.rails",
        title="Each compute node has one fabric NIC for each rail",
        holds=not wrong,
        numbers={"rails": want, "nics": has, "groups_wrong": len(wrong)},
        message=f"{has} NICs, but "
        + ("fabric.rails is " + str(want) if compute or not wrong else f"{needs} are of use: the group has no GPUs"),
        advice="every rail needs one NIC on each compute node, and no other node is on the fabric",
        fields=(first, "networks.fabric.rails", *(field for field in every if field != first)),
    )


def leaves(plan: ClusterPlan) -> Proof:
    """Whether the leaves divide by the rails and every rail of every node ends on exactly one leaf."""
    fabric = plan.spec.networks.fabric
    ends = Counter((leaf.rail, node) for leaf in plan.switches.leaves for node in leaf.nodes)
    wanted = [(rail, node.name) for node in plan.nodes for rail in range(len(node.interfaces) - 2)]
    loose = [end for end in wanted if ends[end] != 1]
    left = fabric.leaves % fabric.rails
    return Proof(
        id="fabric.leaves",
        title="Every rail has the same leaves, and every node's rail ends on one of them",
        holds=not left and not loose,
        numbers={"leaves": fabric.leaves, "rails": fabric.rails, "left_over": left, "unattached": len(loose)},
        message=f"{fabric.leaves} leaves for {fabric.rails} rails, {len(wanted) - len(loose)} of {len(wanted)} "
        "rail ends attached",
        advice=f"use a multiple of {fabric.rails} leaves: each serves one rail",
        fields=_SIZE,
    )


def leaf_oversubscription(plan: ClusterPlan) -> Proof:
    """Bandwidth into the worst leaf over bandwidth out of it, against the spec's limit.

    Where each rail is a single leaf without uplinks nothing has to leave it, and the ratio is 0.
    """
    limit = plan.spec.networks.fabric.oversubscription
    worst = max(plan.switches.leaves, key=lambda leaf: leaf.oversubscription if leaf.nodes else -1.0)
    ratio = plan.switches.oversubscription
    return Proof(
        id="fabric.oversubscription",
        title="No leaf is oversubscribed beyond the limit",
        holds=ratio <= limit,
        numbers={
            "leaf": worst.name,
            "down_gbps": worst.downlink_gbps,
            "up_gbps": worst.uplink_gbps,
            "ratio": round(ratio, 4) if ratio < float("inf") else "none leaves it",
            "limit": limit,
        },
        message=f"{worst.name} has {worst.downlink_gbps:g} Gb/s down and {worst.uplink_gbps:g} up: "
        + (f"{ratio:.3g}, limit {limit:g}" if ratio < float("inf") else "its nodes cannot reach another leaf"),
        advice=f"add uplinks to {worst.name} or connect fewer nodes to it, or raise networks.fabric.oversubscription",
        fields=(
            "networks.fabric.uplinks",
            "networks.fabric.oversubscription",
            "networks.fabric.spines",
            *_SIZE,
            *("networks.fabric.link_gbps", "networks.fabric.uplink_gbps"),
            *_attached(plan),
        ),
    )


def spine_oversubscription(plan: ClusterPlan) -> Proof:
    """The load of the worst link from a spine to a leaf over its capacity, against the spec's limit.

    Every node sends at its full rate to all nodes of its rail alike (of all rails where spines join them), and each
    leaf spreads what leaves it evenly over its uplinks. A leaf with fewer links to one spine than to another is then
    sent more by that spine than it can take.
    """
    fabric = plan.spec.networks.fabric
    used = [leaf for leaf in plan.switches.leaves if leaf.uplinks and leaf.nodes]
    per_rail = bool(plan.switches.spines) and len(plan.switches.spines) % fabric.rails == 0
    worst, where = 0.0, "none"
    for rail in range(fabric.rails) if per_rail else (None,):
        group = [leaf for leaf in used if rail is None or leaf.rail == rail]
        total = sum(leaf.downlink_gbps for leaf in group)
        arriving: dict[str, float] = {}
        for leaf in group:
            for spine, links in Counter(leaf.uplinks).items():
                arriving[spine] = arriving.get(spine, 0.0) + leaf.downlink_gbps * links / len(leaf.uplinks)
        for leaf in group:
            links_to = Counter(leaf.uplinks)
            for spine, load in arriving.items():
                capacity = links_to[spine] * (fabric.uplink_gbps or fabric.link_gbps)
                ratio = load * leaf.downlink_gbps / total / capacity if capacity else float("inf")
                if ratio > worst:
                    worst, where = ratio, f"{spine} to {leaf.name}"
    return Proof(
        id="fabric.spine_oversubscription",
        title="No link from a spine to a leaf is oversubscribed beyond the limit",
        holds=worst <= fabric.oversubscription + 1e-9,
        numbers={
            "spines": len(plan.switches.spines),
            "link": where,
            "ratio": round(worst, 4) if worst < float("inf") else "no link",
            "limit": fabric.oversubscription,
        },
        message="no leaf has to reach another"
        if not used
        else f"{where}: {worst:.3g}, limit {fabric.oversubscription:g}",
        advice="make a leaf's uplinks a multiple of the spines of its rail, so that each spine has as many links to it",
        fields=(
            "networks.fabric.spines",
            "networks.fabric.uplinks",
            "networks.fabric.oversubscription",
            *_SIZE,
            *("networks.fabric.link_gbps", "networks.fabric.uplink_gbps"),
            *_attached(plan),
        ),
    )


def leaf_ports(plan: ClusterPlan) -> Proof:
    """Whether the fullest leaf has a port for each node and uplink."""
    fabric = plan.spec.networks.fabric
    worst = max(plan.switches.leaves, key=lambda leaf: len(leaf.nodes))
    needed = len(worst.nodes) + fabric.uplinks
    return Proof(
        id="fabric.leaf_ports",
        title="Every leaf has a port for each node and uplink",
        holds=needed <= fabric.leaf_ports,
        numbers={"leaf": worst.name, "nodes": len(worst.nodes), "uplinks": fabric.uplinks, "ports": fabric.leaf_ports},
        message=f"{worst.name} needs {needed} of its {fabric.leaf_ports} ports: {len(worst.nodes)} nodes and "
        f"{fabric.uplinks} uplinks",
        advice="add leaves, or use switches with more ports",
        fields=("networks.fabric.leaf_ports", "networks.fabric.uplinks", *_SIZE, *_attached(plan)),
    )


def spine_ports(plan: ClusterPlan) -> Proof:
    """Whether the fullest spine has a port for each uplink that ends on it, and uplinks have spines to end on."""
    fabric = plan.spec.networks.fabric
    ends = Counter(spine for leaf in plan.switches.leaves for spine in leaf.uplinks)
    worst, needed = ends.most_common(1)[0] if ends else ("no spine", 0)
    nowhere = fabric.uplinks > 0 and not plan.switches.spines
    return Proof(
        id="fabric.spine_ports",
        title="Every spine has a port for each uplink",
        holds=needed <= fabric.spine_ports and not nowhere,
        numbers={"spine": worst, "links": needed, "ports": fabric.spine_ports, "spines": fabric.spines},
        message=f"leaves have {fabric.uplinks} uplinks, but there is no spine"
        if nowhere
        else f"{worst} needs {needed} of its {fabric.spine_ports} ports",
        advice="add spines, or use switches with more ports",
        fields=("networks.fabric.spine_ports", "networks.fabric.spines", "networks.fabric.uplinks", *_SIZE),
    )


def _attached(plan: ClusterPlan) -> tuple[str, ...]:
    """The fields that say how many nodes are on the fabric."""
    return tuple(f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in ("count", "nics.fabric"))


PROOFS = (rails, leaves, leaf_ports, spine_ports, leaf_oversubscription, spine_oversubscription)
