"""The environment of a training job, derived from the fabric."""

from spec.plan.model import JobEnvironment
from spec.schema import Cluster, FabricKind


def job_environment(cluster: Cluster) -> JobEnvironment:
    """What every job on the cluster sets, with the reason for each variable.

    On RoCE the traffic class is the lossless class's DSCP in the upper six bits of the IP header's TOS byte
    (RFC 2474), so that NCCL's packets are those that the switches keep lossless.
    """
    fabric = cluster.networks.fabric
    rails = [f"rail{i}" for i in range(fabric.rails)]
    found: dict[str, tuple[str, str]] = {}
    if fabric.kind is FabricKind.TCP:
        found["NCCL_SOCKET_IFNAME"] = (",".join(rails), "the fabric's rails carry TCP")
        found["NCCL_IB_DISABLE"] = ("1", "the fabric has no RDMA")
    else:
        found["NCCL_SOCKET_IFNAME"] = (rails[0], "bootstrap stays on the fabric")
    if fabric.kind is FabricKind.ROCE and fabric.lossless:
        found["NCCL_IB_TC"] = (
            str(fabric.lossless.dscp << 2),
            f"DSCP {fabric.lossless.dscp} of networks.fabric.lossless",
        )
    if fabric.kind is FabricKind.INFINIBAND and fabric.pkey:
        found["NCCL_IB_PKEY"] = (hex(fabric.pkey), "networks.fabric.pkey")
    found["GLOO_SOCKET_IFNAME"] = (rails[0], "gloo has one interface a process; it shall be the fabric's")
    return JobEnvironment(
        variables={name: value for name, (value, _) in found.items()},
        sources={name: why for name, (_, why) in found.items()},
    )
