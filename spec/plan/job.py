"""The environment of a training job, derived from the fabric."""

from dataclasses import dataclass, field

from spec.plan.lossless import traffic_class
from spec.plan.model import JobEnvironment
from spec.schema import Cluster, FabricKind, Role

_LEFT_ALONE = {
    "NCCL_NET_GDR_LEVEL": "NCCL sees the distance between GPU and NIC by itself; a fixed level hides a wrong slot",
    "NCCL_ALGO": "for measurements of a single algorithm, not for training",
    "NCCL_DEBUG": "the job's own choice",
}
_RDMA_LEFT_ALONE = {
    "NCCL_IB_GID_INDEX": "NCCL 2.21 and later finds the RoCE v2 GID by itself; an index differs between machines",
    "NCCL_IB_TIMEOUT": "NCCL's default of 20; a longer one only delays the report of a dead link",
    "NCCL_IB_PCI_RELAXED_ORDERING": "NCCL's default uses relaxed ordering where the NIC can",
}


@dataclass
class _Environment:
    variables: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def set(self, name: str, value: str, why: str) -> None:
        self.variables[name], self.sources[name] = value, why


def job_environment(cluster: Cluster) -> JobEnvironment:
    """What every job on the cluster sets, with the reason for each variable, and what it leaves alone, and why.

    Interface names follow `=`: without it NCCL takes them for prefixes, and `rail1` is `rail10` too. Sources: NCCL's
    user guide, environment variables; for EFA awsome-distributed-training, efa-cheatsheet.
    """
    fabric = cluster.networks.fabric
    rails = [f"rail{i}" for i in range(fabric.rails)]
    unset = dict(_LEFT_ALONE)
    found = _Environment()
    if fabric.kind is FabricKind.TCP:
        found.set("NCCL_SOCKET_IFNAME", f"={','.join(rails)}", "the fabric's rails carry TCP")
        found.set("NCCL_IB_DISABLE", "1", "the fabric has no RDMA")
    else:
        found.set("NCCL_SOCKET_IFNAME", f"={rails[0]}", "bootstrap stays on the fabric")
    if fabric.kind in (FabricKind.INFINIBAND, FabricKind.ROCE):
        unset |= _RDMA_LEFT_ALONE
        _verbs(cluster, found, unset)
    if fabric.kind is FabricKind.EFA:
        found.set("FI_PROVIDER", "efa", "libfabric shall fail where there is no EFA, not fall back to TCP")
        found.set("NCCL_BUFFSIZE", "8388608", "AWS's figure for EFA")
        found.set("NCCL_P2P_NET_CHUNKSIZE", "524288", "AWS's figure for EFA")
        unset["FI_EFA_USE_DEVICE_RDMA"] = "the NCCL plugin decides by instance type"
        unset["RDMAV_FORK_SAFE"] = "libfabric handles forks; with huge pages it makes processes fail"
    found.set("GLOO_SOCKET_IFNAME", rails[0], "gloo takes exact names; one interface, the fabric's first")
    return JobEnvironment(variables=found.variables, sources=found.sources, unset=unset)


def _verbs(cluster: Cluster, found: _Environment, unset: dict[str, str]) -> None:
    fabric = cluster.networks.fabric
    devices = {group.nics.rdma_devices for group in cluster.groups(Role.COMPUTE)}
    only = next(iter(devices)) if len(devices) == 1 else ()
    if only:
        found.set("NCCL_IB_HCA", f"={','.join(only)}", "nics.rdma_devices: the rails, and no storage or management NIC")
    else:
        unset["NCCL_IB_HCA"] = "compute nodes do not declare the same nics.rdma_devices; NCCL takes every active port"
    if fabric.rails > 1:
        found.set("NCCL_CROSS_NIC", "0", "each rail is a subnet of its own: a ring stays on one rail")
    lossless = traffic_class(fabric)
    if lossless:
        found.set("NCCL_IB_TC", str(lossless.nccl_tc), f"DSCP {lossless.dscp} of networks.fabric.lossless")
    if fabric.pkey:
        unset["NCCL_IB_PKEY"] = "NCCL takes the key's index in each port's table, 0 by default, and not the key"
