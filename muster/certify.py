"""One certification run: examine every node, test the fabric, judge, sign for who passed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from securesystemslib.signer import Signer

from muster.standing import Standing
from policies import design, issue
from policies.certificate import verify
from policies.drift import Baseline, facts
from policies.evidence import Award, Run, run_id, site, summarise, write
from policies.fabric import FabricResult, FaultKind
from policies.gate import GateDecision, gate
from policies.identity import identify, identities
from policies.judge import judge_cluster
from policies.measurement import Examination
from policies.refusal import Refusal
from policies.verdict import State, Verdict
from spec.draw import draw
from spec.plan import Node
from spec.schema import Role
from validation.examine import examine_nodes
from validation.fabric.reach import attribute
from validation.fabric.run import at_once, examine_fabric

Say = Callable[[str], None]


@dataclass(frozen=True)
class Observed:
    """What one look at the whole cluster gave."""

    started: datetime
    examinations: Mapping[str, Examination]
    verdicts: Mapping[str, tuple[Verdict, ...]]


async def observe(cluster: Standing, say: Say) -> Observed:
    """Examines and judges every node, in one wave.

    Always all of them, whoever is asked for: a lost peer is charged to the node whose own port explains it, and that
    takes both ends' word.
    """
    started = datetime.now(UTC)
    told = await examine_nodes(
        cluster.plan,
        cluster.transport(),
        [node.name for node in cluster.plan.nodes],
        say,
        expectations_of=lambda _, node: cluster.expectations(node),
    )
    examinations = attribute(cluster.plan, told)
    judged = judge_cluster(
        cluster.catalogue, cluster.plan, cluster.pins, examinations.values(), cluster.waivers, datetime.now(UTC)
    )
    return Observed(started, examinations, judged)


async def certify(cluster: Standing, nodes: Sequence[Node], say: Say) -> Run:
    """A certification run over some nodes: a new certificate for each that passed, the reasons for each that did not.

    A node's older certificate is taken away where something failed, whether it was asked for or not: all are examined.
    Where it merely could not be told, it stays and keeps its date.
    """
    signer = cluster.signer()  # once, and first: a key that cannot sign is told before minutes of examination
    seen = await observe(cluster, say)
    compute = [node for node in cluster.plan.with_role(Role.COMPUTE) if reached(seen.examinations.get(node.name))]
    fabric = None
    if any(node.has(Role.COMPUTE) for node in nodes):
        transport = cluster.transport(at_once(compute))
        fabric = await examine_fabric(transport, cluster.plan, cluster.deployment, seen.examinations, compute, say)
    awards = {node.name: award(cluster, signer, node, seen, fabric) for node in nodes}
    for name, given in awards.items():
        keep(cluster, name, given, seen, fault(name, seen.verdicts.get(name, ()), fabric))
    for name, verdicts in seen.verdicts.items():
        if name not in awards and (why := fault(name, verdicts, fabric)):
            withdraw(cluster, name, why)
    return Run(
        id=run_id(seen.started),
        started=seen.started,
        finished=datetime.now(UTC),
        site=site(cluster.deployment),
        plan=summarise(cluster.plan, design.proofs(cluster.plan)),
        digests=cluster.digests,
        pins=cluster.pins,
        examinations=tuple(seen.examinations.values()),
        verdicts=tuple(verdict for each in seen.verdicts.values() for verdict in each),
        fabric=fabric,
        awards=awards,
        gate=decide(cluster, seen, fabric, awards),
        topology=draw(cluster.plan),
    )


def reached(examination: Examination | None) -> bool:
    """Whether a node can take part in the fabric's tests."""
    return examination is not None and examination.unreachable is None


def award(cluster: Standing, signer: Signer, node: Node, seen: Observed, fabric: FabricResult | None) -> Award:
    """A node's certificate, or why it has none."""
    candidate = issue.Candidate(
        plan=cluster.plan,
        deployment=cluster.deployment,
        node=node.name,
        examination=seen.examinations[node.name],
        verdicts=seen.verdicts[node.name],
        controls=frozenset(control.id for control in cluster.catalogue),
        digests=cluster.digests_of(node.name),
        fabric=fabric,
    )
    now = datetime.now(UTC)
    try:
        envelope = issue.issue(candidate, signer, now)
    except issue.Refused as refused:
        return Award(refused=refused.reasons)
    return Award(envelope=envelope.decode(), certificate=verify(envelope, [signer.public_key], now))


def fault(name: str, verdicts: Sequence[Verdict], fabric: FabricResult | None) -> str:
    """The first thing that a node was found at fault for, in words; empty where it merely was not found good."""
    for verdict in verdicts:
        if verdict.node == name and verdict.state is State.FAIL and verdict.keeps_out:
            return f"{verdict.control}: {verdict.reason or verdict.expected or verdict.title}"
    for each in fabric.findings if fabric else ():
        if name in each.nodes and each.kind is not FaultKind.INCONCLUSIVE:
            return f"fabric, {each.named}: {each.evidence}"
    return ""


def keep(cluster: Standing, name: str, given: Award, seen: Observed, bad: str) -> None:
    """Puts a new certificate and what it rests on in their places, or takes the old ones away from a bad node."""
    if given.envelope is not None and given.certificate is not None:
        refusal = cluster.refusals().get(name)
        if refusal is not None and refusal.at >= given.certificate.issued:  # a clock was ahead: this is the newer word
            cluster.refusal(name).unlink()
        folder = cluster.certificates
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = seen.examinations[name]
        baseline = Baseline(identity=identify(told), verdicts=seen.verdicts[name], facts=facts(told))
        write(cluster.baseline(name), baseline.model_dump_json())
        write(cluster.certificate(name), given.envelope)
    elif bad:
        withdraw(cluster, name, bad)


def withdraw(cluster: Standing, name: str, why: str) -> None:
    """Takes a node's certificate away, after it is written down that no copy of it counts."""
    path = cluster.refusal(name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, Refusal(node=name, at=datetime.now(UTC), why=why).model_dump_json())
    cluster.certificate(name).unlink(missing_ok=True)
    cluster.baseline(name).unlink(missing_ok=True)


def decide(cluster: Standing, seen: Observed, fabric: FabricResult | None, awards: Mapping[str, Award]) -> GateDecision:
    """The gate for the class that this deployment can earn, with every node's hardware as it was just seen."""
    now = datetime.now(UTC)
    told = {name: "; ".join(each.refused) for name, each in awards.items() if each.refused}
    return gate(
        cluster.plan,
        cluster.envelopes(),
        cluster.trusted(),
        cluster.deployment.certificate_class,
        now,
        fabric=fabric,
        pins=cluster.pins.digest,
        images=cluster.deployment.images,
        identities=identities(seen.examinations),
        refused=cluster.refusals() | {name: Refusal(node=name, at=now, why=why) for name, why in told.items()},
    )
