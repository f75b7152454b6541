"""Diagnoses for tests of what is made of them: a link that went down under a job of so many ranks."""

from datetime import UTC, datetime, timedelta

from validation.diagnose.finding import Cause, Diagnosis, Evidence, Read, Step
from validation.diagnose.kinds import Confidence, Retry, Symptom

NOW = datetime(2026, 11, 30, 14, 2, 7, 120_000, tzinfo=UTC)

NOTHING = Diagnosis(
    root_cause=Cause(kind="unknown", summary="nothing is known to be a cause", confidence=Confidence.UNKNOWN),
    checks=("give more: all ranks' logs",),
    read=Read(files=1, bytes=10, lines=3),
)


def evidence(
    at_s: float | None, text: str, rank: int | None = None, node: str | None = None, file: str = "", count: int = 1
) -> Evidence:
    time = None if at_s is None else NOW + timedelta(seconds=at_s)
    return Evidence(
        file=file or f"rank_{rank}.log", line=900 + (rank or 0), text=text, time=time, rank=rank, node=node, count=count
    )


def link_down(ranks: int, timed: bool = True) -> Diagnosis:
    """A rank in the middle loses its link; the last but one left no line; all but the blamed one did 4,120 steps."""

    def at(seconds: float) -> float | None:
        return seconds if timed else None

    bad, silent = ranks // 2 + 1, ranks - 2
    node = f"gpu-{bad // 8}"
    cause = Cause(
        kind="network.link_down",
        summary=f"The link of a fabric adapter went down · rank {bad}, node {node}",
        confidence=Confidence.LIKELY,
        rule="kernel.link_down",
        rank=bad,
        node=node,
        peer="10.0.3.12",
        rail="mlx5_3",
        time=NOW if timed else None,
        evidence=(
            evidence(at(0), "mlx5_core 0000:5e:00.0 ibp94s0: Link down", node=node, file=f"{node}-kern.log"),
            evidence(at(3.4), "NCCL WARN NET/IB: Got completion with error 12", rank=bad, node=node, count=12),
        ),
    )
    slow = Cause(
        kind="storage.slow",
        summary="The file system answered late · rank 2",
        confidence=Confidence.POSSIBLE,
        rank=2,
        evidence=(evidence(at(-20), "task python:812 blocked for more than 122 seconds", rank=2),),
    )
    waits = tuple(
        evidence(at(600 + rank / 20), "Watchdog caught collective operation timeout", rank=rank)
        for rank in range(min(ranks - 2, 6))
    )
    behind = Cause(
        kind="collective.timeout",
        summary="A collective did not end within its time",
        confidence=Confidence.POSSIBLE,
        evidence=waits,
    )
    steps = tuple(
        Step(
            step=4120 - (rank == bad),
            file=f"rank_{rank}.log",
            line=800,
            time=NOW - timedelta(seconds=1 + rank % 7 / 10) if timed else None,
            rank=rank,
        )
        for rank in range(ranks)
        if rank != silent
    )
    return Diagnosis(
        root_cause=cause,
        others=(slow,),
        consequences=(behind,),
        symptom=Symptom.HANG,
        checks=("ibstat and rdma link on both ends: every rail ACTIVE", "ib_write_bw between the two over that rail"),
        fixes=("exchange the cable or transceiver of the link that counts errors",),
        retry=Retry.OTHER_NODE,
        retry_why=f"on other nodes: the one named {node} stays out until it was examined",
        last_step=4120,
        last_steps=steps,
        read=Read(
            files=ranks,
            bytes=12_345_678,
            lines=88_123,
            ranks=tuple(rank for rank in range(ranks) if rank != silent),
            missing_ranks=(silent,),
            left_out=("logs/model.bin: binary",),
        ),
    )
