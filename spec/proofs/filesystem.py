"""A filesystem that stays up, and has room."""

from spec.plan import ClusterPlan
from spec.proofs.proof import Proof
from spec.schema import FailureDomain, Role


def storage_fields(plan: ClusterPlan) -> tuple[str, ...]:
    """The fields that say which nodes are storage nodes and where they stand."""
    groups = range(len(plan.spec.nodes))
    return tuple(f"nodes[{i}].{key}" for i in groups for key in ("count", "roles", "racks", "racking"))


def domains(plan: ClusterPlan) -> dict[str, tuple[str, ...]]:
    """The failure domain of each storage node: what no two copies share."""
    rack_pdus = {rack.name: rack.pdus for rack in plan.spec.facility.racks}
    kind = plan.spec.filesystem.failure_domain
    found: dict[str, tuple[str, ...]] = {}
    for node in plan.with_role(Role.STORAGE):
        if kind is FailureDomain.HOST:
            found[node.name] = (node.name,)
        elif kind is FailureDomain.RACK:
            found[node.name] = (node.rack,)
        else:
            found[node.name] = tuple(sorted(rack_pdus[node.rack]))
    return found


def copies(plan: ClusterPlan) -> Proof:
    """Whether there are as many failure domains as copies."""
    filesystem = plan.spec.filesystem
    count = len(set(domains(plan).values()))
    kind = filesystem.failure_domain.value
    return Proof(
        id="filesystem.copies",
        title="Every copy of the data has a failure domain of its own",
        holds=count >= filesystem.replicas,
        numbers={"replicas": filesystem.replicas, "domains": count, "failure_domain": kind},
        message=f"{filesystem.replicas} copies on {count} failure domains of kind {kind}",
        advice=f"add storage nodes in other {kind}s, or lower filesystem.replicas",
        fields=("filesystem.replicas", "filesystem.failure_domain", *storage_fields(plan), "facility.racks"),
    )


def quorum(plan: ClusterPlan) -> Proof:
    """Whether monitors are odd in number: one more than an odd number can fail, and no more may."""
    monitors = plan.spec.filesystem.monitors
    return Proof(
        id="filesystem.quorum",
        title="Monitors are odd in number",
        holds=monitors % 2 == 1,
        numbers={"monitors": monitors, "majority": monitors // 2 + 1},
        message=f"{monitors} monitors, of whom {monitors // 2 + 1} must agree",
        advice=f"use {monitors - 1 or 1} or {monitors + 1}",
        fields=("filesystem.monitors",),
    )


def monitors(plan: ClusterPlan) -> Proof:
    """Whether there is a storage node for each monitor."""
    wanted, found = plan.spec.filesystem.monitors, len(plan.placement.monitors)
    return Proof(
        id="filesystem.monitors",
        title="Every monitor has a storage node of its own",
        holds=found == wanted,
        numbers={"monitors": wanted, "nodes": found},
        message=f"{wanted} monitors on {found} storage nodes",
        advice=f"use {found - 1 + found % 2} monitors, or more storage nodes",
        fields=("filesystem.monitors", *storage_fields(plan)),
    )


def standby(plan: ClusterPlan) -> Proof:
    """Whether each active metadata server has a standby."""
    servers = plan.spec.filesystem.metadata_servers
    return Proof(
        id="filesystem.standby",
        title="Every active metadata server has a standby",
        holds=servers.standby >= servers.active,
        numbers={"active": servers.active, "standby": servers.standby},
        message=f"{servers.active} active, {servers.standby} standby",
        advice=f"set filesystem.metadata_servers.standby to {servers.active}",
        fields=("filesystem.metadata_servers.standby", "filesystem.metadata_servers.active"),
    )


def metadata_servers(plan: ClusterPlan) -> Proof:
    """Whether there is a storage node for each metadata server."""
    servers = plan.spec.filesystem.metadata_servers
    wanted, found = servers.active + servers.standby, len(plan.placement.metadata_servers)
    return Proof(
        id="filesystem.metadata_servers",
        title="Every metadata server has a storage node of its own",
        holds=found == wanted,
        numbers={"metadata_servers": wanted, "nodes": found},
        message=f"{wanted} metadata servers on {found} storage nodes",
        advice="use fewer of them, or more storage nodes",
        fields=(
            "filesystem.metadata_servers.active",
            "filesystem.metadata_servers.standby",
            *storage_fields(plan),
        ),
    )


def capacity(plan: ClusterPlan) -> Proof:
    """Whether the checkpoints that must be kept fit, after copies, with the room that a healthy filesystem keeps."""
    filesystem = plan.spec.filesystem
    raw = len(plan.with_role(Role.STORAGE)) * filesystem.osds_per_node * filesystem.osd_gib
    usable = raw / filesystem.replicas * (1 - filesystem.free_percent / 100)
    needed = filesystem.checkpoints * filesystem.checkpoint_gib
    return Proof(
        id="filesystem.capacity",
        title="The checkpoints fit",
        holds=needed <= usable,
        numbers={"raw_gib": raw, "usable_gib": round(usable, 1), "needed_gib": needed},
        message=f"{filesystem.checkpoints} checkpoints of {filesystem.checkpoint_gib:g} GiB need {needed:,.1f}, "
        f"{usable:,.1f} GiB are usable",
        advice="add disks or storage nodes, or keep fewer checkpoints",
        fields=(
            *(f"filesystem.{key}" for key in ("checkpoints", "checkpoint_gib", "osd_gib", "osds_per_node")),
            *("filesystem.replicas", "filesystem.free_percent"),
            *(f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in ("count", "roles")),
        ),
    )


PROOFS = (copies, quorum, monitors, standby, metadata_servers, capacity)
