"""A run of the fabric's tests on paper: what it makes of pairs that hold, flutter or fail, and of nobody to test."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from policies.fabric import FabricResult, FaultKind, PairTest, Sweep, SweepPoint
from policies.verdict import State
from spec.deployment import CertificateClass
from spec.load import load
from spec.plan import ClusterPlan, derive
from spec.schema import Role
from validation.fabric import run

LAB = Path(__file__).parents[2] / "clusters" / "lab-wide.yaml"


@pytest.fixture(scope="module")
def plan() -> ClusterPlan:
    return derive(load(LAB))


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str, int], list[float | None]]:
    """What pairs are going to measure, in Gb/s, one after the other; without an entry they are good."""
    told: dict[tuple[str, str, int], list[float | None]] = {}

    async def measure_pair(_t: object, _p: object, a: Any, b: Any, rail: int, _ports: object) -> PairTest:
        rates = told.get((a.name, b.name, rail), [])
        gbps = rates.pop(0) if rates else 1.0
        reason = "" if gbps is not None else "no route to host"
        return PairTest(a=a.name, b=b.name, rail=rail, gbps=gbps, floor_gbps=0.5, tool="iperf3", reason=reason)

    async def run_job(_t: object, _p: object, nodes: list[Any], backend: str) -> tuple[Sweep, ...]:
        if len(nodes) < 2:
            return ()
        point = SweepPoint(bytes=1 << 24, algbw=1, busbw=1, wrong=0, repeats=3)
        names = tuple(node.name for node in nodes)
        return (
            Sweep(
                op="all_reduce", backend=backend, ranks=len(nodes), nodes=names, points=(point,), plateau=1, floor=0.1
            ),
        )

    monkeypatch.setattr(run, "measure_pair", measure_pair)
    monkeypatch.setattr(run, "run_job", run_job)
    return told


def examined(plan: ClusterPlan, count: int | None = None) -> FabricResult:
    deployment: Any = SimpleNamespace(certificate_class=CertificateClass.LAB)
    nodes = plan.with_role(Role.COMPUTE)[:count]
    return asyncio.run(run.examine_fabric(None, plan, deployment, {}, nodes, lambda _: None))  # type: ignore[arg-type]


def test_where_every_pair_holds_every_node_is_tested_on_every_rail_and_the_fabric_passes(
    plan: ClusterPlan, pairs: dict[Any, Any]
) -> None:
    result = examined(plan)
    assert result.state is State.PASS
    ends = Counter((name, pair.rail) for pair in result.pairs for name in (pair.a, pair.b))
    assert ends.keys() == {(name, rail) for name in result.nodes for rail in range(plan.spec.networks.fabric.rails)}
    assert result.started <= result.finished <= datetime.now(UTC)


@pytest.mark.parametrize("first", [0.1, None])
def test_a_pair_that_holds_when_it_is_tested_again_keeps_nobody_out(
    plan: ClusterPlan, pairs: dict[Any, Any], first: float | None
) -> None:
    a, b = (node.name for node in plan.with_role(Role.COMPUTE)[:2])
    pairs[a, b, 0] = [first, 0.9]
    result = examined(plan)
    assert result.state is State.PASS
    assert not result.findings
    (again,) = [pair for pair in result.pairs if (pair.a, pair.b, pair.rail) == (a, b, 0)]
    assert again.gbps == 0.9
    assert "first: " in again.reason, "it is told that it had to be tested again"


@pytest.mark.parametrize("second", [0.1, None])
def test_a_pair_that_fails_twice_of_two_nodes_keeps_both_out(
    plan: ClusterPlan, pairs: dict[Any, Any], second: float | None
) -> None:
    a, b = (node.name for node in plan.with_role(Role.COMPUTE)[:2])
    pairs[a, b, 0] = [0.2, second]
    result = examined(plan, 2)
    assert result.state is State.FAIL
    assert {finding.kind for finding in result.findings} == {FaultKind.INCONCLUSIVE}
    assert all(result.against(name) for name in (a, b))


def test_a_node_whose_rail_ends_on_no_leaf_is_not_taken_for_tested(plan: ClusterPlan, pairs: dict[Any, Any]) -> None:
    name = plan.with_role(Role.COMPUTE)[0].name
    leaves = tuple(
        leaf.model_copy(update={"nodes": tuple(each for each in leaf.nodes if (leaf.rail, each) != (1, name))})
        for leaf in plan.switches.leaves
    )
    switches = plan.switches.model_copy(update={"leaves": leaves})
    result = examined(ClusterPlan(**{**dict(plan), "switches": switches}))
    assert result.state is State.FAIL
    assert [(each.kind, each.nodes) for each in result.findings] == [(FaultKind.INCONCLUSIVE, (name,))]
    assert result.against(name)


@pytest.mark.parametrize("count", [0, 1])
def test_with_fewer_than_two_nodes_nothing_is_judged_and_nobody_gets_in(
    plan: ClusterPlan, pairs: dict[Any, Any], count: int
) -> None:
    result = examined(plan, count)
    assert result.state is State.NOT_EVALUATED
    assert all(result.against(node.name) for node in plan.with_role(Role.COMPUTE))


def test_without_a_collective_the_fabric_does_not_pass(
    plan: ClusterPlan, pairs: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> tuple[Sweep, ...]:
        return ()

    monkeypatch.setattr(run, "run_job", nothing)
    result = examined(plan)
    assert result.state is State.FAIL
    assert "no collective was run" in result.reason
    assert all(result.against(name) for name in result.nodes)
