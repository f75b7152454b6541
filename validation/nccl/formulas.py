"""Bandwidth of collectives, by the published formulas of nccl-tests (doc/PERFORMANCE.md).

S is bytes: the larger of what a rank sends and receives. algbw is S over time; busbw is algbw times a factor that
makes the number comparable with the hardware's link speed, whatever the number of ranks.
"""

from collections.abc import Sequence
from statistics import median

GATHERING = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
ROOTED = frozenset({"broadcast", "reduce", "send_recv"})


def bus_factor(op: str, ranks: int) -> float:
    """busbw over algbw. Raises ValueError for an unknown operation or fewer than two ranks.

    One rank moves nothing over any bus: its zero would look like a measured bandwidth.
    """
    if ranks < 2:
        raise ValueError(f"{ranks} rank: a collective's bandwidth needs at least 2")
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in GATHERING:
        return (ranks - 1) / ranks
    if op in ROOTED:
        return 1.0
    raise ValueError(f"unknown operation {op!r}")


def bandwidth(op: str, size: int, seconds: float, ranks: int) -> tuple[float, float]:
    """algbw and busbw, GB/s (10^9 bytes a second)."""
    algorithm = size / seconds / 1e9
    return algorithm, algorithm * bus_factor(op, ranks)


def plateau(points: Sequence[tuple[int, float]], least: int) -> float | None:
    """Median busbw over the sizes of at least `least` bytes; None where fewer than two sizes are that large.

    Args: points are (bytes, busbw). The mean over all sizes is no measure: small messages show latency
    (NVIDIA/nccl-tests issue 115).
    """
    large = [bus for size, bus in points if size >= least]
    return median(large) if len(large) >= 2 else None
