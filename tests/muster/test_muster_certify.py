"""A certification run: how often and when it asks for what is slow or may fail."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import sample_runs

from muster import certify as certification
from muster.certify import Observed, certify
from muster.commands.nodes import others_at_fault
from muster.console import Problem
from muster.standing import Standing
from policies import design
from policies.compatibility import proofs
from policies.judge import judge_cluster
from policies.measurement import Examination, Measurement, Outcome
from policies.report import matrix, page
from spec.plan import derive
from spec.schema import Role
from validation.fabric.run import at_once
from validation.transport import WIDTH

FAULTY = "gpu-1"
"""Lost a GPU."""


def examined(name: str, now: datetime) -> Examination:
    changed = {}
    if name == FAULTY:
        lost = Measurement(measure="gpu.count", outcome=Outcome.MEASURED, value=7)
        changed = {"identity": sample_runs.identity(name, 7), "measurements": (lost,)}
    return sample_runs.examination(name, started=now, finished=now, **changed)


@pytest.fixture
def seen(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every node answers, and what the run asks for is noted in its order."""
    asked: list[str] = []
    signer = Standing.signer

    async def observe(cluster: Standing, say: Callable[[str], None]) -> Observed:
        asked.append("nodes")
        now = datetime.now(UTC)
        told = {node.name: examined(node.name, now) for node in cluster.plan.nodes}
        judged = judge_cluster(
            cluster.catalogue, cluster.plan, cluster.pins, told.values(), cluster.waivers, datetime.now(UTC)
        )
        return Observed(now, told, judged)

    async def examine_fabric(*_: object) -> object:
        asked.append("fabric")
        now = datetime.now(UTC)
        return sample_runs.fabric(cluster.plan, started=now, finished=now)

    def opened(self: Standing) -> object:
        asked.append("key")
        return signer(self)

    monkeypatch.setattr(certification, "observe", observe)
    monkeypatch.setattr(certification, "examine_fabric", examine_fabric)
    monkeypatch.setattr(Standing, "signer", opened)
    return asked


def test_the_signing_key_is_opened_once_however_many_nodes_there_are(cluster: Standing, seen: list[str]) -> None:
    run = asyncio.run(certify(cluster, cluster.plan.nodes, print))
    assert len(run.awards) == len(cluster.plan.nodes) > 1
    assert seen == ["key", "nodes", "fabric"]


def test_a_key_that_cannot_sign_is_told_before_any_node_is_examined(
    cluster: Standing, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_SIGNING_KEY", "file:/nowhere/key.pem")
    with pytest.raises(Problem):
        asyncio.run(certify(cluster, cluster.plan.nodes, print))
    assert seen == ["key"]


def test_a_run_and_its_report_tell_every_proof_those_of_the_pinned_versions_too(
    cluster: Standing, seen: list[str]
) -> None:
    run = asyncio.run(certify(cluster, cluster.plan.nodes, print))
    assert run.plan.proofs == design.proofs(cluster.plan)
    pinned = [proof.id for proof in proofs(cluster.pins)]
    assert pinned
    assert {proof.id for proof in run.plan.proofs} > set(pinned)
    shown = page(run, matrix(run))
    assert all(f">{name}<" in shown for name in pinned)


def test_a_run_takes_the_certificate_of_a_node_at_fault_that_nobody_asked_for(
    cluster: Standing, seen: list[str], certified: Callable[..., None]
) -> None:
    certified("gpu-0", FAULTY)
    run = asyncio.run(certify(cluster, [cluster.plan.node("control-0")], print))
    assert run.awards.keys() == {"control-0"}
    assert cluster.envelopes().keys() == {"gpu-0"}, "what could not be told of gpu-0 takes nothing away"
    assert others_at_fault(run).keys() == {FAULTY}
    assert others_at_fault(run)[FAULTY].startswith("gpu.count: ")
    assert run.gate is not None
    assert not run.gate.go


def test_a_node_that_was_asked_for_is_no_other(cluster: Standing, seen: list[str]) -> None:
    run = asyncio.run(certify(cluster, cluster.plan.nodes, print))
    assert run.awards[FAULTY].refused
    assert others_at_fault(run) == {}


def test_every_rank_and_both_ends_of_every_pair_have_a_place_at_once(
    cluster: Standing, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that waits for its turn is waited for by all others, which never give theirs up."""
    big = derive(sample_runs.cluster(gpu=300))
    compute = big.with_role(Role.COMPUTE)
    ranks = sum(node.gpus.count for node in compute if node.gpus)
    assert at_once(compute) == ranks > 2 * WIDTH
    asked: list[int] = []
    monkeypatch.setattr(Standing, "transport", lambda _, least=0: asked.append(least))
    asyncio.run(certify(cluster, cluster.plan.nodes, print))
    assert asked == [at_once(cluster.plan.with_role(Role.COMPUTE))]


@pytest.mark.parametrize(("least", "width"), [(0, WIDTH), (1, WIDTH), (WIDTH + 1, WIDTH + 1)])
def test_a_transport_has_the_places_that_are_asked_of_it(cluster: Standing, least: int, width: int) -> None:
    assert cluster.transport(least)._places._value == width
