"""Whom a fabric result keeps out: whoever a finding names, whoever was in a bad collective, whoever was in none."""

from datetime import UTC, datetime

import pytest

from policies.fabric import FabricResult, FaultKind, Finding, Sweep, SweepPoint
from policies.verdict import State

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NODES = ("gpu-0", "gpu-1", "gpu-2")


def sweep(*nodes: str, wrong: int = 0, plateau: float | None = 1.0) -> Sweep:
    point = SweepPoint(bytes=1 << 22, algbw=1.0, busbw=1.0, wrong=wrong, repeats=3)
    return Sweep(
        op="all_reduce", backend="gloo", ranks=len(nodes), nodes=nodes, points=(point,), plateau=plateau, floor=0.1
    )


def result(*findings: Finding, sweeps: tuple[Sweep, ...], state: State = State.FAIL) -> FabricResult:
    return FabricResult(started=NOW, finished=NOW, nodes=NODES, sweeps=sweeps, findings=findings, state=state)


def kept_out(found: FabricResult) -> set[str]:
    return {node for node in NODES if found.against(node)}


def finding(kind: FaultKind, *nodes: str) -> Finding:
    return Finding(kind=kind, subject="x", nodes=nodes, evidence="y")


def test_a_pass_keeps_out_nobody_that_took_part_and_everybody_else():
    found = result(sweeps=(sweep(*NODES),), state=State.PASS)
    assert kept_out(found) == set()
    assert found.against("gpu-9")


@pytest.mark.parametrize("kind", [FaultKind.NODE, FaultKind.RAIL, FaultKind.INCONCLUSIVE, FaultKind.LEAF])
def test_a_finding_keeps_out_whom_it_names_only(kind):
    assert kept_out(result(finding(kind, "gpu-2"), sweeps=(sweep("gpu-0", "gpu-1"),))) == {"gpu-2"}


@pytest.mark.parametrize("kind", [FaultKind.NODE, FaultKind.RAIL, FaultKind.INCONCLUSIVE])
def test_a_fault_that_names_nobody_may_be_anybody(kind):
    assert kept_out(result(finding(kind), sweeps=(sweep(*NODES),))) == set(NODES)


@pytest.mark.parametrize("kind", [FaultKind.PATH, FaultKind.LEAF])
def test_a_fault_between_nodes_keeps_out_none_of_them(kind):
    assert kept_out(result(finding(kind), sweeps=(sweep(*NODES),))) == set()


@pytest.mark.parametrize("bad", [{"wrong": 1}, {"plateau": 0.01}, {"plateau": None}])
def test_a_bad_collective_keeps_out_all_that_were_in_it_whatever_else_was_found(bad):
    found = result(finding(FaultKind.NODE, "gpu-2"), sweeps=(sweep("gpu-0", "gpu-1", **bad),))
    assert kept_out(found) == set(NODES)


def test_a_node_that_no_collective_was_run_with_is_kept_out():
    assert kept_out(result(finding(FaultKind.NODE, "gpu-2"), sweeps=())) == set(NODES)


@pytest.mark.parametrize("state", [State.ERROR, State.NOT_EVALUATED])
def test_a_run_that_gave_no_answer_keeps_out_everybody(state):
    assert kept_out(result(sweeps=(sweep(*NODES),), state=state)) == set(NODES)
