"""Whether a node has earned a certificate, and the certificate if it has."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from securesystemslib.signer import Signer

from policies.canonical import digest
from policies.certificate import Certificate, Digests, Seen, Terms, sign
from policies.fabric import FabricResult
from policies.identity import Identity, IdentityError, identify
from policies.measurement import Examination
from policies.verdict import State, Verdict
from spec.deployment import CertificateClass, Deployment
from spec.plan import ClusterPlan
from spec.schema import MachineKind, Role, Substrate

FRESH = timedelta(hours=1)
"""How old an examination, and the fabric's tests, may be when a node is certified: the default."""


class Refused(Exception):  # noqa: N818
    """A node has not earned a certificate: `reasons` says why, each in words for people."""

    def __init__(self, node: str, reasons: tuple[str, ...]) -> None:
        """Args: the node's name, and at least one reason."""
        super().__init__(f"{node} is refused: {'; '.join(reasons)}")
        self.node, self.reasons = node, reasons


@dataclass(frozen=True)
class Candidate:
    """A node and everything that is known of it."""

    plan: ClusterPlan
    deployment: Deployment
    node: str
    examination: Examination
    verdicts: tuple[Verdict, ...]
    controls: frozenset[str]
    """Ids of the controls that must each have a verdict: the whole catalogue as it applies to this node."""
    digests: Digests
    fabric: FabricResult | None
    """Needed for nodes with the compute role."""


def evidence_digest(examination: Examination, verdicts: tuple[Verdict, ...]) -> str:
    """SHA-256 of what a node's certificate rests on. Raises ValueError where RFC 8785 has no form for it."""
    return digest(
        {
            "examination": examination.model_dump(mode="json"),
            "verdicts": [each.model_dump(mode="json") for each in sorted(verdicts, key=lambda each: each.control)],
        }
    )


def refusals(candidate: Candidate, now: datetime, fresh: timedelta = FRESH) -> tuple[str, ...]:
    """Everything that speaks against certifying a node, not only the first. Pure; empty where it has earned it."""
    return (
        *_deployment(candidate),
        *_examination(candidate, now, fresh),
        *_identity(candidate),
        *_verdicts(candidate, now),
        *_fabric(candidate, now, fresh),
        *_class(candidate),
    )


def issue(candidate: Candidate, signer: Signer, now: datetime, fresh: timedelta = FRESH) -> bytes:
    """A signed certificate, as `policies.certificate.verify` reads it.

    It lasts as the spec says, but never longer than a waiver that it needed. Raises Refused.
    """
    if reasons := refusals(candidate, now, fresh):
        raise Refused(candidate.node, reasons)
    plan, verdicts = candidate.plan, candidate.verdicts
    node = plan.node(candidate.node)
    identity = identify(candidate.examination)
    issued = now.astimezone(UTC).replace(microsecond=0)
    waived = [each.waiver for each in verdicts if each.state is State.WAIVED and each.waiver]
    expires = min([issued + plan.spec.certificate.lifetime, *(note.expires for note in waived)])
    certificate = Certificate(
        node=node.name,
        identity=identity.digest,
        digests=candidate.digests,
        issued=issued,
        passed=_ids(verdicts, State.PASS),
        terms=Terms(
            cluster=plan.name,
            certificate_class=candidate.deployment.certificate_class,
            expires=expires.astimezone(UTC),
            evidence=evidence_digest(candidate.examination, verdicts),
            seen=Seen(
                machine=node.machine.value,
                fabric=plan.fabric_kind.value,
                gpu_model=node.gpus.model if node.gpus else None,
                gpus=len(identity.gpus),
                simulated=_simulated(candidate),
            ),
            waived=_ids(verdicts, State.WAIVED),
            not_applicable=_ids(verdicts, State.NOT_APPLICABLE),
            warned=_ids(verdicts, State.FAIL),
        ),
        key=signer.public_key.keyid,
    )
    return sign(certificate, signer)


def _ids(verdicts: tuple[Verdict, ...], state: State) -> tuple[str, ...]:
    return tuple(sorted(each.control for each in verdicts if each.state is state))


def _deployment(candidate: Candidate) -> list[str]:
    plan, deployment = candidate.plan, candidate.deployment
    found = []
    if candidate.node not in deployment.nodes or candidate.node not in [node.name for node in plan.nodes]:
        found.append("it is not a node of this cluster")
    if deployment.name != plan.name:
        found.append(f"the deployment is of cluster {deployment.name}, the plan of {plan.name}")
    if deployment.spec_digest != plan.digest:
        found.append("the spec was edited since it was deployed; run pulumi up first")
    if candidate.digests.spec != plan.digest:
        found.append("it was judged by another spec")
    if candidate.digests.image != deployment.images.get(candidate.node):
        found.append("its certificate would name another image than the deployment")
    return found


def _examination(candidate: Candidate, now: datetime, fresh: timedelta) -> list[str]:
    examination = candidate.examination
    if examination.unreachable:
        return [f"it could not be examined: {examination.unreachable}"]
    found = []
    if examination.node != candidate.node:
        found.append(f"the examination is of {examination.node}")
    if not examination.complete:
        found.append("the examination broke off before its end")
    if not examination.fresh(now, fresh.total_seconds()):
        found.append(f"the examination is not from the last {fresh}")
    if examination.suite_digest != candidate.digests.suite:
        found.append("it was examined by another suite")
    try:
        evidence_digest(examination, candidate.verdicts)
    except ValueError as broken:
        found.append(f"its evidence has no canonical form: {broken}")
    return found


def _identity(candidate: Candidate) -> list[str]:
    try:
        identity: Identity = identify(candidate.examination)
    except IdentityError as broken:
        return [str(broken)]
    gpus = next((node.gpus for node in candidate.plan.nodes if node.name == candidate.node), None)
    expected = gpus.count if gpus else 0
    return [f"its identity names {len(identity.gpus)} GPUs of {expected}"] if len(identity.gpus) != expected else []


def _verdicts(candidate: Candidate, now: datetime) -> list[str]:
    if not candidate.controls:
        return ["no control applies to it: the catalogue is empty"]
    found = []
    count = Counter(each.control for each in candidate.verdicts)
    if missing := sorted(candidate.controls - count.keys()):
        found.append(f"{len(missing)} of {len(candidate.controls)} controls were not judged: {', '.join(missing[:5])}")
    if strange := sorted(count.keys() - candidate.controls):
        found.append(f"judged by controls that are not in the catalogue: {', '.join(strange[:5])}")
    if twice := sorted(control for control, times in count.items() if times > 1):
        found.append(f"judged twice: {', '.join(twice[:5])}")
    for each in candidate.verdicts:
        if each.node != candidate.node:
            found.append(f"{each.control}: the verdict is of {each.node}")
        if each.keeps_out:
            found.append(f"{each.control}: {each.state.value}: {each.reason or each.expected or each.title}")
        if each.state is State.WAIVED and (each.waiver is None or each.waiver.expires <= now):
            found.append(f"{each.control}: the waiver is missing or over")
    if not any(each.state is State.PASS for each in candidate.verdicts):
        found.append("nothing passed")
    return found


def _fabric(candidate: Candidate, now: datetime, fresh: timedelta) -> list[str]:
    if candidate.node not in [node.name for node in candidate.plan.with_role(Role.COMPUTE)]:
        return []
    fabric = candidate.fabric
    if fabric is None:
        return ["the fabric was not tested"]
    stale = not timedelta(0) <= now - fabric.finished <= fresh
    return [*fabric.against(candidate.node), *([f"the fabric's tests are not from the last {fresh}"] if stale else [])]


def _class(candidate: Candidate) -> list[str]:
    if candidate.deployment.certificate_class is not CertificateClass.PRODUCTION:
        return []
    found = []
    machines = [node.machine for node in candidate.plan.nodes if node.name == candidate.node]
    if Substrate.LAB in (candidate.deployment.substrate, candidate.plan.spec.substrate):
        found.append("a lab never earns a production certificate")
    if MachineKind.CONTAINER in machines:
        found.append("a container never earns a production certificate")
    if simulated := _simulated(candidate):
        found.append(f"not real, so not for production: {', '.join(simulated)}")
    return found


def _simulated(candidate: Candidate) -> tuple[str, ...]:
    """What was not real: what the deployment and the fabric's tests say, and what measurements say of themselves."""
    told = [*candidate.deployment.simulated, *(candidate.fabric.simulated if candidate.fabric else ())]
    areas = {each.measure.partition(".")[0] for each in candidate.examination.measurements if each.simulated}
    areas |= {each.control.partition(".")[0] for each in candidate.verdicts if each.simulated}
    return tuple(dict.fromkeys([*told, *(f"{area} measurements are simulated" for area in sorted(areas))]))
