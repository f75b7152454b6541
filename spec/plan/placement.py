"""Which storage nodes run the filesystem's monitors and metadata servers."""

from collections import Counter
from collections.abc import Sequence

from spec.plan.model import Node, Placement
from spec.schema import Cluster, Role


def placement(cluster: Cluster, nodes: Sequence[Node]) -> Placement:
    """Monitors and metadata servers, each one a node, in an order that visits every rack before it visits one again.

    There are as many as there are nodes for, at most: the proofs say where that is too few.
    """
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int, str]] = []
    for node in nodes:
        if node.has(Role.STORAGE):
            turns.append((seen[node.rack], len(turns), node.name))
            seen[node.rack] += 1
    order = [name for _, _, name in sorted(turns)]
    servers = cluster.filesystem.metadata_servers
    return Placement(
        monitors=tuple(order[: cluster.filesystem.monitors]),
        metadata_servers=tuple(order[: servers.active + servers.standby]),
    )
