"""Each rank is started once, with its own numbers, and whatever becomes of it is told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from spec.load import load
from spec.plan import derive
from spec.schema import Role
from validation.nccl.launch import run_job, start
from validation.nccl.sweep import Backend
from validation.transport import Completed, Unreachable

LAB = Path(__file__).parents[2] / "clusters" / "lab-containers.yaml"
PLACES = [("gpu-0", 0), ("gpu-0", 1), ("gpu-1", 0), ("gpu-1", 1)]


class Nodes:
    """Notes each rank's variables. On gpu-1 the first rank fails, and the second cannot be reached."""

    as_root = ()

    def __init__(self) -> None:
        self.started: dict[str, dict[str, str]] = {}
        self.sources: set[bytes] = set()
        self.gone: Exception = Unreachable("no route to host")

    async def run(
        self,
        node: str,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout: float = 60,  # noqa: ARG002
    ) -> Completed:
        own = dict(each.split("=", 1) for each in argv[1 : argv.index("timeout")])
        self.started[own["RANK"]] = {**own, "node": node}
        self.sources.add(stdin)
        if own["RANK"] == "3":
            raise self.gone
        failed = own["RANK"] == "2"
        return Completed(node, 2 if failed else 0, b"said\n", b"sees no GPU, and nccl needs one\n" if failed else b"")


def test_ranks_are_numbered_over_all_places_and_share_the_rest() -> None:
    nodes = Nodes()
    asyncio.run(start(nodes, PLACES, {"MASTER_ADDR": "10.0.0.1"}, 5))
    assert {(rank, own["node"], own["LOCAL_RANK"]) for rank, own in nodes.started.items()} == {
        (str(number), node, str(local)) for number, (node, local) in enumerate(PLACES)
    }
    assert {(own["WORLD_SIZE"], own["MASTER_ADDR"]) for own in nodes.started.values()} == {("4", "10.0.0.1")}
    assert len(nodes.sources) == 1


def test_a_rank_that_fails_or_is_gone_says_so_and_stays_in_its_place() -> None:
    said = asyncio.run(start(Nodes(), PLACES, {}, 5))
    assert [(each.node, each.rank) for each in said] == [("gpu-0", 0), ("gpu-0", 1), ("gpu-1", 2), ("gpu-1", 3)]
    assert [each.problem for each in said] == [
        None,
        None,
        "exit status 2: sees no GPU, and nccl needs one",
        "no route to host",
    ]


def test_a_rank_for_which_no_process_can_be_started_is_gone_too() -> None:
    nodes = Nodes()
    nodes.gone = OSError(24, "Too many open files")
    said = asyncio.run(start(nodes, PLACES, {}, 5))
    assert said[3].problem == "[Errno 24] Too many open files"
    assert said[0].problem is None


@pytest.mark.parametrize(("backend", "algorithm"), [("nccl", "Ring"), ("gloo", None)])
def test_the_job_runs_the_algorithm_that_its_floor_is_derived_for(backend: Backend, algorithm: str | None) -> None:
    """A ring sends every byte out of each node once; a tree between two nodes sends less, and exceeds the NICs."""
    plan = derive(load(LAB))
    nodes = Nodes()
    asyncio.run(run_job(nodes, plan, plan.with_role(Role.COMPUTE), backend))
    assert {own.get("NCCL_ALGO") for own in nodes.started.values()} == {algorithm}
    assert {own["NCCL_SOCKET_IFNAME"] for own in nodes.started.values()} == {plan.job.variables["NCCL_SOCKET_IFNAME"]}
