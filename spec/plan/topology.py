"""Which leaf each node's rail ends on, and which spine each uplink ends on."""

from collections.abc import Sequence
from math import ceil

from spec.plan.model import Leaf, Node, Switches
from spec.schema import Cluster


def switches(cluster: Cluster, nodes: Sequence[Node]) -> Switches:
    """The fabric's switches.

    Leaves are dealt to rails in turn: leaf `s × rails + r` carries rail r of the s-th block of nodes. Each leaf's
    uplinks are spread evenly over the spines of its rail where the spines divide by the rails, else over all spines.
    """
    fabric = cluster.networks.fabric
    spines = tuple(f"spine-{i}" for i in range(fabric.spines))
    blocks = max(1, fabric.leaves // fabric.rails)
    attached = [node for node in nodes if any(each.plane.startswith("rail-") for each in node.interfaces)]
    size = max(1, ceil(len(attached) / blocks))
    own = len(spines) // fabric.rails if spines and len(spines) % fabric.rails == 0 else 0
    leaves = []
    for index in range(fabric.leaves):
        rail, block = index % fabric.rails, index // fabric.rails
        members = tuple(
            node.name for node in attached[block * size : (block + 1) * size] if node.interface(f"rail-{rail}")
        )
        within = spines[rail * own : (rail + 1) * own] if own else spines
        ends = tuple(within[i % len(within)] for i in range(fabric.uplinks)) if within else ()
        leaves.append(
            Leaf(
                name=f"leaf-{index}",
                rail=rail,
                nodes=members,
                uplinks=ends,
                downlink_gbps=len(members) * fabric.link_gbps,
                uplink_gbps=len(ends) * (fabric.uplink_gbps or fabric.link_gbps),
            )
        )
    return Switches(leaves=tuple(leaves), spines=spines, blocks=blocks)
