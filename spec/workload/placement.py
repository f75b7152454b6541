"""Where the ranks of a parallel group stand, and how fast they exchange."""

from enum import StrEnum
from math import ceil
from typing import NamedTuple

from spec.plan.thresholds import NVLINK
from spec.workload.curve import LATENCY_S
from spec.workload.hardware import Hardware


class Tier(StrEnum):
    """What a byte crosses on its way."""

    NODE = "node"
    """NVLink, or what joins the GPUs of a node."""
    LEAF = "leaf"
    SPINE = "spine"


class Bytes(NamedTuple):
    """Bytes that one GPU sends, by the highest tier that they cross."""

    node: float
    leaf: float
    spine: float

    @property
    def fabric(self) -> float:
        """Those that leave the node."""
        return self.leaf + self.spine

    @property
    def all(self) -> float:
        """All of them."""
        return self.node + self.leaf + self.spine


class Group(NamedTuple):
    """`size` ranks, `stride` apart: `members` of them on each of `islands` islands of NVLink, under `leaves` leaves."""

    size: int
    members: int
    islands: int
    leaves: int

    @property
    def tier(self) -> Tier:
        """The highest that it spans."""
        return Tier.NODE if self.islands == 1 else Tier.LEAF if self.leaves == 1 else Tier.SPINE

    def spread(self, sent: float) -> Bytes:
        """The bytes of a hierarchical ring by tier.

        Of n ranks on k islands, (k-1)/(n-1) of what each sends leaves its island (NCCL's wire rate); of k islands
        under l leaves, l of the ring's k hops cross the spines.
        """
        if self.islands == 1:
            return Bytes(sent, 0.0, 0.0)
        out = sent * (self.islands - 1) / (self.size - 1)
        over = out * self.leaves / self.islands if self.leaves > 1 else 0.0
        return Bytes(sent - out, out - over, over)


def group(hardware: Hardware, size: int, stride: int) -> Group:
    """The group of `size` ranks that are `stride` apart."""
    members = max(1, min(size, hardware.island // stride))
    islands = ceil(size / members)
    nodes = ceil(size * stride / hardware.gpus_per_node)
    leaves = 1 if islands == 1 else min(islands, ceil(nodes / hardware.nodes_per_leaf))
    return Group(size, members, islands, leaves)


def inside(hardware: Hardware) -> float:
    """GB/s of bus bandwidth within an island on large messages."""
    return hardware.in_node.plateau if hardware.in_node else hardware.nvlink * NVLINK


def outside(hardware: Hardware, members: int, tier: Tier) -> float:
    """GB/s of bus bandwidth of a ring between islands on large messages, for a group with `members` on each.

    In a ring every byte of bus bandwidth leaves each island once, and the groups that share an island share its
    rails. Through the spines: the leaves' share of the uplinks.
    """
    per_gpu = (
        hardware.between.plateau / hardware.gpus_per_node if hardware.between else hardware.fabric * hardware.reach
    )
    over = hardware.oversubscription if tier is Tier.SPINE and not hardware.between else 1.0
    return per_gpu * members / over


def ring(hardware: Hardware, where: Group, message: float, sent: float) -> float:
    """Seconds of one collective on a ring: `message` bytes as nccl-tests counts them, `sent` bytes from each rank."""
    if where.size == 1 or sent == 0:
        return 0.0
    near = inside(hardware)
    if where.islands == 1:
        if hardware.in_node:
            return hardware.in_node.seconds(message, sent, 1.0)
        return LATENCY_S + sent / near / 1e9
    far = outside(hardware, where.members, where.tier)
    if hardware.between:
        share = min(where.members / hardware.gpus_per_node, near / hardware.between.plateau)
        return hardware.between.seconds(message, sent, share)
    return LATENCY_S + sent / min(near, far) / 1e9


def exchange(hardware: Hardware, where: Group, sent: Bytes) -> float:
    """Seconds of one all-to-all or point-to-point: in the node and between nodes at the same time."""
    if sent.all == 0:
        return 0.0
    far = outside(hardware, 1, where.tier) if sent.fabric else 1.0
    return LATENCY_S + max(sent.node / inside(hardware), sent.fabric / far) / 1e9
