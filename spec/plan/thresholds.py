"""What the fabric must reach, derived from what the spec declares: no figure is copied from another machine.

The parts of a link's rate that good machines reach are published measurements. A lab declares a `link_gbps` and a
`floor_fraction` that any computer meets: there a floor finds what is broken, never what is slow.
"""

from typing import Literal

from spec.plan.model import ClusterPlan, Floor
from spec.schema import FabricKind, Gpus

COLLECTIVE = 0.91
"""All-reduce bus bandwidth over the NICs' rate: 365 of 400 GB/s on 4×8 H200 with 8×400 Gb/s, 4 GiB messages, ring
(stas00/ml-engineering)."""
NVLINK = 0.82
"""All-reduce bus bandwidth over NVLink's rate in one direction: 370 of 450 GB/s on 8×H100, ring (nccl-tests#212)."""
PAIR = 0.95
"""RDMA write bandwidth over the link's rate: 380 of 400 Gb/s (azurehpc-health-checks), 192 of 200 (oci-hpc)."""
TCP = 0.5
"""TCP over a link's rate. Hosts differ widely: the floor only tells a working rail from a broken one."""
DEGRADED = 0.9
"""A machine below nine tenths of what its like reach is degraded (nccl-tests fails below 0.9 × its expectation)."""


def nccl_floor(plan: ClusterPlan, backend: Literal["nccl", "gloo"] = "nccl") -> Floor:
    """The least bus bandwidth of an all-reduce between nodes, on messages of 1 GiB and more, GB/s.

    In a ring every byte of bus bandwidth leaves each node once, so that a node's NICs together are the limit; where
    the worst leaf is oversubscribed, its share of the uplinks. Use NCCL_ALGO=RING: between two nodes a tree exceeds
    the NICs' rate (nccl-tests#196). Gloo runs one operation over one interface.
    """
    fabric = plan.spec.networks.fabric
    rails = 1 if backend == "gloo" else fabric.rails
    ratio = max(1.0, plan.switches.oversubscription)
    share = f" / {ratio:.3g} oversubscription" if ratio > 1 else ""
    return _floor(
        gbps=rails * fabric.link_gbps / ratio,
        fraction=fabric.floor_fraction or (TCP if fabric.kind is FabricKind.TCP else COLLECTIVE) * DEGRADED,
        what=f"{rails} rail{'s' * (rails > 1)} × {fabric.link_gbps:g} Gb/s{share}",
    )


def pair_floor(plan: ClusterPlan) -> Floor:
    """The least bandwidth between two nodes over one rail, GB/s: `gbps` gives it in the link's unit."""
    fabric = plan.spec.networks.fabric
    return _floor(
        gbps=fabric.link_gbps,
        fraction=fabric.floor_fraction or (TCP * DEGRADED if fabric.kind is FabricKind.TCP else PAIR),
        what=f"one rail × {fabric.link_gbps:g} Gb/s",
    )


def nvlink_floor(gpus: Gpus) -> Floor | None:
    """The least bus bandwidth of an all-reduce within a node, GB/s; none where the spec declares no NVLink rate."""
    if gpus.nvlink_gbps is None or gpus.count < 2:
        return None
    return _floor(gpus.nvlink_gbps, NVLINK * DEGRADED, f"NVLink {gpus.nvlink_gbps:g} Gb/s")


def _floor(gbps: float, fraction: float, what: str) -> Floor:
    return Floor(
        gigabytes=gbps / 8 * fraction,
        capacity_gigabytes=gbps / 8,
        fraction=fraction,
        source=f"{fraction * 100:.3g} % of {what} = {gbps / 8 * fraction:.4g} GB/s",
    )
