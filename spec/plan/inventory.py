"""The Ansible inventory of a plan: every variable that roles read, none of them written twice."""

from typing import Any

from spec.plan.expectations import time_server, time_sources
from spec.plan.firewall import CEPH_DAEMONS, firewall
from spec.plan.model import ClusterPlan, Node
from spec.schema import Role


def inventory(plan: ClusterPlan) -> dict[str, Any]:
    """Ansible's YAML inventory as data: group `all`, a group a role, a group a node group.

    Host variables are prefixed `muster_`. How a host is reached (ssh config, user) is the substrate's to add.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for role in Role:
        groups[f"role_{role.value}"] = {"hosts": {node.name: {} for node in plan.with_role(role)}}
    for group in plan.spec.nodes:
        key = f"group_{group.name.replace('-', '_')}"
        groups[key] = {"hosts": {node.name: {} for node in plan.nodes if node.group == group.name}}
    hosts = {node.name: host_variables(plan, node) for node in plan.nodes}
    return {"all": {"vars": cluster_variables(plan), "hosts": hosts, "children": groups}}


def cluster_variables(plan: ClusterPlan) -> dict[str, Any]:
    """What is the same on every host."""
    spec = plan.spec
    return {
        "muster_cluster": plan.name,
        "muster_domain": spec.site.domain,
        "muster_hosts": {
            node.name: {each.plane: str(each.address.ip) for each in node.interfaces} for node in plan.nodes
        },
        "muster_fabric": spec.networks.fabric.model_dump(mode="json"),
        "muster_lossless": plan.lossless.model_dump(mode="json") if plan.lossless else None,
        "muster_storage_network": str(plan.subnet("storage").network),
        "muster_management_network": str(plan.subnet("management").network),
        "muster_filesystem": {
            **spec.filesystem.model_dump(mode="json"),
            "least_copies": spec.filesystem.least_copies,
        },
        "muster_monitors": list(plan.placement.monitors),
        "muster_metadata_servers": list(plan.placement.metadata_servers),
        "muster_ceph_ports": {"first": CEPH_DAEMONS.first, "last": CEPH_DAEMONS.last},
        "muster_pool": spec.pool.model_dump(mode="json"),
        "muster_job_environment": plan.job.variables,
        "muster_time_server": time_server(plan).name,
        "muster_time_sources": list(spec.site.time.sources),
        "muster_dns": list(spec.site.dns),
        "muster_users": list(spec.site.users),
    }


def host_variables(plan: ClusterPlan, node: Node) -> dict[str, Any]:
    """What is one host's own."""
    return {
        "muster_roles": [role.value for role in node.roles],
        "muster_machine": node.machine.value,
        "muster_capabilities": sorted(each.value for each in node.capabilities),
        "muster_interfaces": [each.model_dump(mode="json") for each in node.interfaces],
        "muster_firewall": [rule.model_dump(mode="json") for rule in firewall(plan, node)],
        "muster_gpus": node.gpus.model_dump(mode="json") if node.gpus else None,
        "muster_cpus": node.cpus,
        "muster_memory_gib": node.memory_gib,
        "muster_rack": node.rack,
        "muster_pdus": [*next((rack.pdus for rack in plan.spec.facility.racks if rack.name == node.rack), ())],
        "muster_time_sources_of_host": time_sources(plan, node),
    }
