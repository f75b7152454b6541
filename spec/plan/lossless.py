"""One lossless traffic class, as host, switch and NCCL each call it."""

from spec.plan.model import TrafficClass
from spec.schema import Fabric, FabricKind


def traffic_class(fabric: Fabric) -> TrafficClass | None:
    """What follows from the fabric's DSCP and priority; none where the fabric is not RoCE or declares no such class.

    DSCP is the upper six bits of the IP header's TOS byte (RFC 2474), which is what NCCL_IB_TC sets. Switches and NICs
    that trust DSCP map it by default to the priority in its upper three bits (the class selectors of RFC 2474).
    """
    lossless = fabric.lossless
    if fabric.kind is not FabricKind.ROCE or lossless is None:
        return None
    return TrafficClass(
        dscp=lossless.dscp,
        priority=lossless.priority,
        switch_priority=lossless.dscp >> 3,
        nccl_tc=lossless.dscp << 2,
        pfc=tuple(int(i == lossless.priority) for i in range(8)),
    )
