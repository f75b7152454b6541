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


def spine_loss(plan: ClusterPlan) -> Proof:
    """Bandwidth into the worst leaf over what is left of its uplinks when any one spine is lost, against the limit.

    Where each rail is a single leaf its nodes reach each other without a spine.
    """
    fabric = plan.spec.networks.fabric
    limit = fabric.degraded_oversubscription or float("inf")
    used = [leaf for leaf in plan.switches.leaves if leaf.nodes] if plan.switches.blocks > 1 else []
    worst, spine, ratio = "no leaf", "none", 0.0
    for leaf in used:
        name, links = Counter(leaf.uplinks).most_common(1)[0] if leaf.uplinks else ("any spine", 0)
        left = leaf.uplink_gbps - links * (fabric.uplink_gbps or fabric.link_gbps)
        after = leaf.downlink_gbps / left if left > 0 else float("inf")
        if after > ratio:
            worst, spine, ratio = leaf.name, name, after
    return Proof(
        id="fabric.spine_loss",
        title="The fabric survives the loss of any one spine",
        holds=ratio <= limit and ratio < float("inf"),
        numbers={
            "leaf": worst,
            "spine": spine,
            "ratio": round(ratio, 4) if ratio < float("inf") else "none leaves it",
            "limit": limit if limit < float("inf") else "none",
        },
        message="no leaf has to reach another"
        if not used
        else f"without {spine} nothing leaves {worst}"
        if ratio == float("inf")
        else f"without {spine}, {worst} has {ratio:.3g} times more bandwidth in than out"
        + (f", limit {limit:g}" if limit < float("inf") else ""),
        advice="use at least two spines for each rail, and at least two uplinks a leaf",
        fields=(
            "networks.fabric.spines",
            "networks.fabric.degraded_oversubscription",
            "networks.fabric.uplinks",
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


PROOFS = (rails, leaves, leaf_ports, spine_ports, leaf_oversubscription, spine_loss)
