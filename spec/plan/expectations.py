"""What the spec expects of one node, by dotted name: what controls compare with, and what the node suite is told."""

from pydantic import JsonValue

from spec.plan.firewall import firewall
from spec.plan.model import ClusterPlan, Expectations, Interface, Node
from spec.schema import BondMode, FabricKind, MachineKind, Role, Scheduler

EXPECTED: dict[str, str] = {
    "node.name": "the node's name",
    "node.cpus": "CPUs that it has",
    "node.memory_gib": "memory that it has, GiB",
    "memory.at_least_gib": "memory that its kernel shows at least, GiB",
    "network.interfaces": "by interface: its address with prefix length, its MTU and its plane",
    "network.links": "by interface: address, MTU and state that must be measured",
    "network.speeds": "by Ethernet interface: the speed that must be measured, Gb/s, all links of a bond together",
    "network.ports": "interfaces and links of bonds",
    "network.peers": "by plane: the addresses of the nodes that this one must reach, by name",
    "network.paths": "by PLANE/PEER: the MTU of the path",
    "network.rails": "interfaces of the fabric's rails",
    "network.bonds": "by bond: its links",
    "network.bonded": "by bond: mode and links that must be measured",
    "rdma.links": "interfaces that carry RDMA",
    "rdma.ports": "by interface: what must be measured of its RDMA port",
    "time.limit_ms": "how far its clock may be off, ms",
    "time.sources": "addresses of whom its clock follows; none where its own is the cluster's",
    "ports.open": "ports that it lets in, as in tcp/22",
    "ports.jobs": "ports of jobs, first-last",
    "ports.ephemeral": "the same as the kernel writes it, `first last`",
    "gpu.count": "GPUs that it has",
    "gpu.model": "their product name",
    "gpu.memory_gib": "memory of each by its product name, GiB",
    "gpu.memory_at_least_gib": "memory that the driver shows of each at least, GiB",
    "gpu.nvlinks": "NVLink links of each",
    "gpu.nvswitch": "whether NVSwitches join them, so that Fabric Manager must have registered each",
    "filesystem.mount": "where the parallel filesystem is mounted",
    "filesystem.free_percent": "room that the filesystem keeps, percent",
    "filesystem.witness": "that this node answers for the filesystem as a whole",
    "filesystem.monitors": "its monitors, all of which must be in quorum",
    "filesystem.active": "its metadata servers that serve",
    "filesystem.standby": "its metadata servers that wait, at least",
    "services.active": "services that must run, each with the state `active`",
    "slurm.node": "the node's name in Slurm",
    "users.login": "users that may log in",
    "users.sudo": "users that may become root",
}
"""Every name that expectations may have, and what it means. Not every node has each."""

NVSWITCH_LINKS = 18
"""NVLinks of a GPU that hangs on NVSwitches: Hopper and Blackwell SXM boards (NVIDIA H100 and DGX B200 datasheets)."""

AUTOMATION_USER = "muster"
"""The user that Ansible and the examination log in as. A site's own people are declared in `site.users`."""

FEW = 32
"""A plane with at most so many other nodes is probed whole by each of them."""


def expectations(plan: ClusterPlan, node: Node) -> Expectations:
    """The expectations of one node. Pure, JSON only: they travel to the node as they are.

    Lists are sorted, so that equal sets are equal lists.
    """
    spec = plan.spec
    peers = {each.plane: probed_peers(plan, node, each.plane) for each in node.interfaces}
    found: Expectations = {
        "node.name": node.name,
        "node.cpus": node.cpus,
        "node.memory_gib": node.memory_gib,
        # Page structures take 1.6 % (64 bytes for each page of 4 KiB) and the kernel itself up to 128 MiB, so that of
        # 32 modules of memory one that is missing is still seen.
        "memory.at_least_gib": round(node.memory_gib * 0.97 - 0.125, 3),
        "network.interfaces": {
            each.name: {"address": str(each.address), "mtu": each.mtu, "plane": each.plane} for each in node.interfaces
        },
        "network.links": {
            each.name: {"address": str(each.address), "mtu": each.mtu, "state": "up"} for each in node.interfaces
        },
        "network.peers": {plane: dict(found) for plane, found in peers.items()},
        "network.paths": {
            f"{each.plane}/{name}": each.mtu for each in node.interfaces for name in sorted(peers[each.plane])
        },
        "network.rails": [each.name for each in node.interfaces if each.plane.startswith("rail-")],
        "network.ports": [*sorted({name for each in node.interfaces for name in (each.name, *each.links)})],
        "network.bonds": {each.name: list(each.links) for each in node.interfaces if each.links},
        "network.bonded": {
            each.name: {"mode": each.bond.value, "up": [*sorted(each.links)], "down": []}
            for each in node.interfaces
            if each.links and each.bond
        },
        "network.speeds": {
            each.name: {"speed_gbps": speed_gbps(plan, each)}
            for each in node.interfaces
            if not (each.plane.startswith("rail-") and plan.fabric_kind is FabricKind.INFINIBAND)
        },
        "rdma.links": [each.name for each in node.interfaces if each.rdma],
        "rdma.ports": {each.name: rdma_port(plan, node) for each in node.interfaces if each.rdma},
        "time.limit_ms": spec.site.time.limit_ms,
        "time.sources": time_sources(plan, node),
        "ports.open": [*sorted({f"{rule.protocol}/{each}" for rule in firewall(plan, node) for each in rule.ports})],
        "ports.jobs": str(spec.networks.fabric.job_ports),
        "ports.ephemeral": str(spec.networks.fabric.job_ports).replace("-", " "),
        "services.active": dict.fromkeys(services(plan, node), "active"),
        "users.login": [*sorted({AUTOMATION_USER, *spec.site.users})],
        "users.sudo": [AUTOMATION_USER, "root"],
    }
    if node.gpus:
        found["gpu.count"] = node.gpus.count
        found["gpu.model"] = node.gpus.model
        found["gpu.memory_gib"] = node.gpus.memory_gib
        # Boards with GDDR memory give a sixteenth of it up for error correction; HBM boards show 99 %.
        found["gpu.memory_at_least_gib"] = round(node.gpus.memory_gib * 0.93, 2)
        found["gpu.nvlinks"] = node.gpus.nvlinks
        found["gpu.nvswitch"] = node.gpus.nvlinks >= NVSWITCH_LINKS
    if node.has(Role.COMPUTE):
        found["filesystem.mount"] = spec.filesystem.mount
        found["filesystem.free_percent"] = spec.filesystem.free_percent
        if spec.pool.scheduler is Scheduler.SLURM:
            found["slurm.node"] = node.name
    if node.name == witness(plan):
        found["filesystem.witness"] = node.name
        found["filesystem.monitors"] = spec.filesystem.monitors
        found["filesystem.standby"] = spec.filesystem.metadata_servers.standby
        found["filesystem.active"] = spec.filesystem.metadata_servers.active
    return found


def witness(plan: ClusterPlan) -> str | None:
    """The node that answers for the filesystem as a whole: the first of its monitors.

    What is wrong with the filesystem is one fact, not one a storage node; whoever caused it fails by its own services.
    """
    return plan.placement.monitors[0] if plan.placement.monitors else None


def services(plan: ClusterPlan, node: Node) -> list[str]:
    """The services that a node's roles need, sorted. GPUs' daemons are seen by what they do for the GPUs."""
    found = {"chrony.service", "nftables.service", "ssh.service"}
    if plan.spec.pool.scheduler is Scheduler.SLURM:
        daemons = {Role.CONTROL: "slurmctld.service", Role.COMPUTE: "slurmd.service"}
        found |= {unit for role in node.roles if role in daemons for unit in ("munge.service", daemons[role])}
    if node.name in plan.placement.monitors:
        found |= {f"ceph-mon@{node.name}.service", f"ceph-mgr@{node.name}.service"}
    if node.name in plan.placement.metadata_servers:
        found.add(f"ceph-mds@{node.name}.service")
    return sorted(found)


def rdma_port(plan: ClusterPlan, node: Node) -> dict[str, JsonValue]:
    """What must be measured of a rail's RDMA port. Soft-RoCE, in virtual machines, names no real rate."""
    infiniband = plan.fabric_kind is FabricKind.INFINIBAND
    found: dict[str, JsonValue] = {"state": "ACTIVE", "link_layer": "InfiniBand" if infiniband else "Ethernet"}
    if node.machine is MachineKind.HOST:
        found["rate_gbps"] = plan.spec.networks.fabric.link_gbps
    return found


def speed_gbps(plan: ClusterPlan, interface: Interface) -> float:
    """The speed that Linux shows of an interface: of an LACP bond that of all its links, else of one link."""
    links = len(interface.links) if interface.bond is BondMode.LACP else 1
    return plan.subnet(interface.plane).link_gbps * max(1, links)


def probed_peers(plan: ClusterPlan, node: Node, plane: str) -> dict[str, str]:
    """Addresses of the nodes that one tries to reach on a plane, by name.

    All of them where they are few. On a larger plane those whose distance in the plane's order is a power of two, to
    either side: then each node is tried by as many others as it tries, any two are joined by few hops, and a cut
    anywhere between two halves of the plane is crossed. Together with control and storage nodes, which all need.
    """
    everyone = plan.addresses[plane]
    names = list(everyone)
    if len(names) - 1 <= FEW:
        return {name: address for name, address in everyone.items() if name != node.name}
    here = names.index(node.name)
    steps = [1 << power for power in range((len(names) - 1).bit_length())]
    near = {names[(here + sign * step) % len(names)] for step in steps for sign in (1, -1)}
    served = {each.name for role in (Role.CONTROL, Role.STORAGE) for each in plan.with_role(role)}
    return {name: everyone[name] for name in sorted((near | served) - {node.name}) if name in everyone}


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
