"""From a spec to its plan."""

import hashlib
import json

from spec.plan.addresses import interfaces, subnets
from spec.plan.capabilities import CAPABILITIES
from spec.plan.job import job_environment
from spec.plan.lossless import traffic_class
from spec.plan.model import ClusterPlan, Node
from spec.plan.placement import placement
from spec.plan.topology import switches
from spec.schema import Cluster


def derive(cluster: Cluster) -> ClusterPlan:
    """The plan of a spec. Pure. A design that cannot work has a plan too: `spec.proofs` says what is wrong with it."""
    nets = subnets(cluster)
    nodes: list[Node] = []
    for group in cluster.nodes:
        able = CAPABILITIES[group.machine]
        for index in range(group.count):
            name = f"{group.name}-{index}"
            nodes.append(
                Node(
                    name=name,
                    group=group.name,
                    index=index,
                    roles=group.roles,
                    machine=group.machine,
                    capabilities=able,
                    cpus=group.cpus,
                    memory_gib=group.memory_gib,
                    disk_gib=group.disk_gib,
                    gpus=group.gpus,
                    rack=group.rack(index),
                    interfaces=interfaces(cluster, group, name, len(nodes), nets, able),
                )
            )
    return ClusterPlan(
        spec=cluster,
        digest=digest(cluster),
        subnets=nets,
        nodes=tuple(nodes),
        switches=switches(cluster, nodes),
        lossless=traffic_class(cluster.networks.fabric),
        placement=placement(cluster, nodes),
        job=job_environment(cluster),
    )


def digest(cluster: Cluster) -> str:
    """SHA-256 of the spec's canonical JSON: the same for specs that differ only in layout and comments."""
    text = json.dumps(cluster.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
