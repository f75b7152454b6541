"""What the spec expects of one node, by dotted name: what controls compare with, and what the node suite is told."""

from pydantic import JsonValue

from spec.plan.firewall import firewall
from spec.plan.model import ClusterPlan, Expectations, Node
from spec.schema import Role


def expectations(plan: ClusterPlan, node: Node) -> Expectations:
    """The expectations of one node. Pure, JSON only: they travel to the node as they are.

    Lists are sorted, so that equal sets are equal lists.
    """
    spec = plan.spec
    found: Expectations = {
        "node.name": node.name,
        "node.cpus": node.cpus,
        "node.memory_gib": node.memory_gib,
        "network.interfaces": {
            each.name: {"address": str(each.address), "mtu": each.mtu, "plane": each.plane} for each in node.interfaces
        },
        "network.peers": {
            each.plane: {
                peer.name: str(peer.address(each.plane))
                for peer in plan.nodes
                if peer.name != node.name and peer.interface(each.plane)
            }
            for each in node.interfaces
        },
        "network.rails": [each.name for each in node.interfaces if each.plane.startswith("rail-")],
        "network.bonds": {each.name: list(each.links) for each in node.interfaces if each.links},
        "rdma.links": [each.name for each in node.interfaces if each.rdma],
        "time.limit_ms": spec.site.time.limit_ms,
        "time.sources": time_sources(plan, node),
        "ports.open": [*sorted({f"{rule.protocol}/{each}" for rule in firewall(plan, node) for each in rule.ports})],
        "ports.jobs": str(spec.networks.fabric.job_ports),
    }
    if node.gpus:
        found["gpu.count"] = node.gpus.count
        found["gpu.model"] = node.gpus.model
        found["gpu.memory_gib"] = node.gpus.memory_gib
        found["gpu.nvlinks"] = node.gpus.nvlinks
    if node.has(Role.COMPUTE):
        found["filesystem.mount"] = spec.filesystem.mount
        found["filesystem.free_percent"] = spec.filesystem.free_percent
    if node.has(Role.STORAGE):
        found["filesystem.monitors"] = spec.filesystem.monitors
        found["filesystem.standby"] = spec.filesystem.metadata_servers.standby
        found["filesystem.active"] = spec.filesystem.metadata_servers.active
    return found


def time_server(plan: ClusterPlan) -> Node:
    """The node whose clock the others follow: the first with the control role. Raises LookupError without one."""
    servers = plan.with_role(Role.CONTROL)
    if not servers:
        raise LookupError(f"{plan.name} has no node with the control role")
    return servers[0]


def time_sources(plan: ClusterPlan, node: Node) -> list[JsonValue]:
    """Whom a node's clock follows: the site's sources on the time server, that server on all other nodes."""
    server = time_server(plan)
    if node.name == server.name:
        return [*sorted(plan.spec.site.time.sources)]
    return [str(server.address())]
