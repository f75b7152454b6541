"""Snapshots for tests of what is made of them: ranks of a job that wait in one collective, and what is odd of one."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from validation.diagnose.finding import Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.live.snapshot import Frame, Rank, Snapshot, Thread

NOW = datetime(2026, 11, 30, 14, 2, 7, tzinfo=UTC)
TORCH = "/venv/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"


def frames(*told: str) -> tuple[Frame, ...]:
    """From `file:line name`, the innermost first."""
    made = []
    for each in told:
        place, _, name = each.rpartition(" ")
        file, _, line = place.rpartition(":")
        made.append(Frame(name=name, file=file, line=int(line)))
    return tuple(made)


def main(*told: str, **more: Any) -> Thread:
    """A main thread."""
    return Thread(name="MainThread", main=True, frames=frames(*told), **more)


WAITING = main(
    f"{C10D}:3010 all_reduce",
    f"{TORCH}/distributed/c10d_logger.py:83 wrapper",
    "/job/train.py:88 step",
    "/job/train.py:120 main",
)


def rank(number: int, **more: Any) -> Rank:
    """One that waits in `all_reduce` at train.py:88 and does not move."""
    usual: dict[str, Any] = {"world": 8, "pid": 1000 + number, "state": "S", "wchan": "futex_do_wait", "cpu_s": 0.0}
    return Rank(**{"rank": number, **usual, "moved": False, "threads": (WAITING,), **more})


def job(
    odd: Mapping[int, Mapping[str, Any]] | None = None, world: int = 8, per_node: int = 8, **more: Any
) -> list[Snapshot]:
    """Snapshots of all nodes of a job; `odd`: what differs of some ranks, None where a rank is not there."""
    odd = odd or {}
    nodes = []
    for first in range(0, world, per_node):
        told = [
            rank(number, world=world, local_rank=number - first, local_world=per_node, **(odd.get(number) or {}))
            for number in range(first, min(world, first + per_node))
            if number not in odd or odd[number] is not None
        ]
        nodes.append(
            Snapshot(
                node=f"gpu-{first // per_node}",
                job="4711",
                time=NOW + timedelta(seconds=first / 100),
                interval_s=3.0,
                ranks=tuple(told),
                asked=-(-world // per_node),
                **more,
            )
        )
    return nodes


def diagnosed(snapshots: list[Snapshot]) -> Diagnosis:
    """What is said of them."""
    return read_job([], live=snapshots)
