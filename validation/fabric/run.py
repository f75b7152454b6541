"""One run of the fabric's tests: pairs on each rail, the faults that they show, then the NCCL job over who is left."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from policies.fabric import FabricResult, FaultKind, Finding, PairTest
from policies.measurement import Examination
from policies.verdict import State
from spec.deployment import Deployment
from spec.plan import ClusterPlan, Node
from validation.fabric import perftest
from validation.fabric.interface import interface_state
from validation.fabric.localise import Held, localise, over_rails
from validation.fabric.pairs import measure_pair
from validation.nccl.launch import backend_of, run_job
from validation.transport import Transport


async def examine_fabric(
    transport: Transport,
    plan: ClusterPlan,
    deployment: Deployment,
    examinations: Mapping[str, Examination],
    nodes: Sequence[Node],
    say: Callable[[str], None],
) -> FabricResult:
    """Tests the fabric between nodes. With fewer than two there is nothing between them: `not_evaluated`.

    Args: `examinations` of the node suite say whose ports are down; `nodes` are those that can be reached.
    """
    started = datetime.now(UTC)
    backend = backend_of(deployment)
    pairs: list[PairTest] = []
    findings: tuple[Finding, ...] = ()
    rails = plan.spec.networks.fabric.rails
    if len(nodes) > 1:
        for rail in range(rails):
            say(f"fabric: pairs on rail {rail} of {rails}")
            down = frozenset(
                node.name
                for node in nodes
                if (told := interface_state(node, f"rail-{rail}", examinations.get(node.name))) and not told.up
            )
            findings += await _rail(transport, plan, nodes, rail, down, examinations, pairs)
        findings = over_rails(findings, rails)
    kept_out = {name for finding in findings for name in finding.nodes}
    able = [node for node in nodes if node.name not in kept_out]
    if len(able) > 1:
        say(f"fabric: collectives over {len(able)} nodes ({backend})")
    sweeps = await run_job(transport, plan, able, backend)
    result = FabricResult(
        started=started,
        finished=datetime.now(UTC),
        nodes=tuple(node.name for node in nodes),
        pairs=tuple(pairs),
        sweeps=sweeps,
        findings=findings,
        simulated=stand_ins(backend),
        state=State.NOT_EVALUATED,
        reason="fewer than two nodes could be tested" if len(nodes) < 2 else "",
    )
    if len(nodes) < 2:
        return result
    state = State.FAIL if result.faults else State.PASS
    return FabricResult.model_validate({**dict(result), "state": state, "reason": "; ".join(result.faults)})


def at_once(nodes: Sequence[Node]) -> int:
    """Commands that the tests run together, for which the transport must have places: both ends of a round's pairs,
    and every rank of the job.
    """
    return max(len(nodes), sum(node.gpus.count if node.gpus else 1 for node in nodes))


async def _rail(
    transport: Transport,
    plan: ClusterPlan,
    nodes: Sequence[Node],
    rail: int,
    down: frozenset[str],
    examinations: Mapping[str, Examination],
    pairs: list[PairTest],
) -> tuple[Finding, ...]:
    """Searches one rail; adds every test to `pairs`."""
    names = {node.name: node for node in nodes}
    leaves = {
        leaf.name: [name for name in leaf.nodes if name in names] for leaf in plan.switches.leaves if leaf.rail == rail
    }
    attached = {name for members in leaves.values() for name in members}
    loose = tuple(
        Finding(
            kind=FaultKind.INCONCLUSIVE,
            subject=f"rail {rail} of {name}",
            nodes=(name,),
            evidence="it ends on no leaf of the plan, so that nobody tests it",
        )
        for name in names
        if name not in attached
    )
    ports = perftest.ports(examinations, names, rail)
    search = localise(rail, leaves, down)
    held: Held | None = None
    while True:
        try:
            asked = next(search) if held is None else search.send(held)
        except StopIteration as end:
            found: tuple[Finding, ...] = end.value
            return (*found, *loose)
        done = await asyncio.gather(
            *(_counting(partial(measure_pair, transport, plan, names[a], names[b], rail, ports)) for a, b in asked)
        )
        pairs.extend(done)
        held = {(test.a, test.b): test.ok for test in done}


async def _counting(measure: Callable[[], Awaitable[PairTest]]) -> PairTest:
    """A test; where it does not hold the same test again, and the second counts: single shots flutter, and one bad test
    that nothing explains later would keep every node out.
    """
    first = await measure()
    if first.ok:
        return first
    second = await measure()
    was = first.reason or f"{first.gbps:.3g} Gb/s"
    return second.model_copy(update={"reason": f"{second.reason or 'tested again'}, first: {was}"})


def stand_ins(backend: str) -> tuple[str, ...]:
    """What of the fabric's tests is not what a production cluster runs, in words."""
    return ("gloo on CPUs stands in for NCCL on GPUs",) if backend == "gloo" else ()
