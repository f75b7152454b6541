"""Go or no-go: whether training may start on a cluster now."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict
from securesystemslib.signer import Key

from policies.certificate import CLOCK_TOLERANCE, Certificate, CertificateError, Withdrawn, verify
from policies.exits import Exit
from policies.fabric import FabricResult
from policies.identity import IdentityError
from policies.issue import FRESH
from policies.refusal import Refusal
from policies.verdict import State
from spec.deployment import CertificateClass
from spec.plan import ClusterPlan
from spec.schema import Role


class Obstacle(StrEnum):
    """Why the gate stays shut, as far as the exit code tells it."""

    FAILED = "failed"
    ERROR = "error"
    MISSING = "missing"
    """A node without a certificate, or a fabric without a result."""
    INVALID = "invalid"
    """A certificate that is expired, of the wrong class, spec, node or key."""


class GateReason(BaseModel):
    """One thing that keeps the gate shut."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str
    """A node's name, or `fabric`, or the cluster's name."""
    obstacle: Obstacle
    message: str


class GateNode(BaseModel):
    """One node that training would use, and until when it may."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    certificate_class: CertificateClass
    expires: AwareDatetime
    simulated: tuple[str, ...]


class GateDecision(BaseModel):
    """Go, or why not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: str
    wanted: CertificateClass
    decided: AwareDatetime
    lasting_until: AwareDatetime
    """The instant up to which every certificate had to hold."""
    expected: int
    """Nodes that training would use."""
    ready: tuple[GateNode, ...]
    reasons: tuple[GateReason, ...]
    identified: bool = False
    """Whether each node's hardware was looked at and compared with what was certified; else nothing was asked."""

    @property
    def go(self) -> bool:
        """Whether training may start: every node is ready, there is one, and nothing speaks against it."""
        return not self.reasons and 0 < self.expected == len(self.ready)

    @property
    def exit_code(self) -> Exit:
        """0 on go. Else what weighs most: nothing known (3), something failed (1), invalid (5), missing (4)."""
        if self.go:
            return Exit.PASS
        obstacles = {reason.obstacle for reason in self.reasons}
        for obstacle, code in (
            (Obstacle.ERROR, Exit.ERROR),
            (Obstacle.FAILED, Exit.FAIL),
            (Obstacle.INVALID, Exit.INVALID),
        ):
            if obstacle in obstacles:
                return code
        return Exit.INCOMPLETE


def gate(
    plan: ClusterPlan,
    envelopes: Mapping[str, bytes],
    trusted: Collection[Key],
    wanted: CertificateClass,
    now: datetime,
    *,
    fabric: FabricResult | None,
    pins: str,
    images: Mapping[str, str],
    identities: Mapping[str, str | IdentityError] | None = None,
    unusable: Mapping[str, str] | None = None,
    lasting: timedelta = timedelta(0),
    refused: Mapping[str, Refusal] | None = None,
) -> GateDecision:
    """The decision. Pure: it verifies every certificate itself, so that none counts which was not verified now.

    Args:
        envelopes: each node's certificate as issued, by node name. Those of other nodes do not matter.
        fabric: the last result over the nodes; a cluster whose fabric was not tested together is no-go, and so is one
            whose result is older than what the newest certificate rests on: a later run's result was lost.
        pins: the digest of the version pins that the spec names, as they are now.
        images: the image that each node was made from, as the deployment names it.
        identities: where given, each node's identity digest as it is now, or why it is not known; a node whose
            identity is not known is no-go.
        unusable: where given, why the scheduler would not use a node now, by name: a certificate that holds is of no
            use to a run that the node cannot join.
        lasting: how long the planned run takes; a certificate must outlast it.
        refused: the last time that each node was refused: a certificate that is not newer does not count.
    """
    until = now + max(lasting, timedelta(0))
    names = [node.name for node in plan.with_role(Role.COMPUTE)]
    ready, reasons = [], [] if names else [_no_nodes(plan)]
    newest: datetime | None = None
    for name in names:
        held = _node(plan, name, envelopes, trusted, wanted, now, until, pins, images, identities, refused or {})
        if isinstance(held, GateReason):
            reasons.append(held)
        elif unusable and name in unusable:
            reasons.append(_unusable(name, unusable[name]))
        else:
            seen = held.terms.seen
            newest = held.issued if newest is None else max(newest, held.issued)
            ready.append(
                GateNode(
                    node=name,
                    certificate_class=held.certificate_class,
                    expires=held.expires,
                    simulated=seen.simulated,
                )
            )
    if names:
        reasons += _fabric(fabric, names, wanted, now, newest)
    return GateDecision(
        cluster=plan.name,
        wanted=wanted,
        decided=now,
        lasting_until=until,
        expected=len(names),
        ready=tuple(ready),
        reasons=tuple(reasons),
        identified=identities is not None,
    )


def _unusable(name: str, why: str) -> GateReason:
    message = f"would get no job: {why} · muster certify {name} opens it, unless an administrator closed it"
    return GateReason(subject=name, obstacle=Obstacle.FAILED, message=message)


def _no_nodes(plan: ClusterPlan) -> GateReason:
    return GateReason(
        subject=plan.name, obstacle=Obstacle.ERROR, message="no node has the compute role · training has nowhere to run"
    )


def _node(
    plan: ClusterPlan,
    name: str,
    envelopes: Mapping[str, bytes],
    trusted: Collection[Key],
    wanted: CertificateClass,
    now: datetime,
    until: datetime,
    pins: str,
    images: Mapping[str, str],
    identities: Mapping[str, str | IdentityError] | None,
    refused: Mapping[str, Refusal],
) -> Certificate | GateReason:
    data, refusal = envelopes.get(name), refused.get(name)
    if data is None:
        if refusal is not None:
            return GateReason(subject=name, obstacle=Obstacle.FAILED, message=refusal.why)
        message = f"holds no certificate · muster certify {name}"
        return GateReason(subject=name, obstacle=Obstacle.MISSING, message=message)
    told = None if identities is None else identities.get(name)
    held, invalid = None, ""
    try:
        held = verify(
            data,
            trusted,
            now,
            node=name,
            identity=told if isinstance(told, str) else None,
            cluster=plan.name,
            spec=plan.digest,
            pins=pins,
            image=images.get(name),
            wanted=wanted,
            refused=refusal,
        )
    except Withdrawn as withdrawn:
        return GateReason(subject=name, obstacle=Obstacle.FAILED, message=str(withdrawn))
    except CertificateError as broken:
        invalid = str(broken)
    if identities is not None and not isinstance(told, str):
        message = f"its hardware could not be identified now: {told or 'it was not looked at'} · mend it, ask again"
        return GateReason(subject=name, obstacle=Obstacle.ERROR, message=message)
    if held is None:
        return GateReason(subject=name, obstacle=Obstacle.INVALID, message=invalid)
    if until >= held.expires:
        message = (
            f"its certificate expires at {held.expires:%Y-%m-%d %H:%M:%SZ},"
            f" before the run ends at {until:%Y-%m-%d %H:%M:%SZ} · muster certify {name}"
        )
        return GateReason(subject=name, obstacle=Obstacle.INVALID, message=message)
    return held


def _fabric(
    fabric: FabricResult | None, names: list[str], wanted: CertificateClass, now: datetime, newest: datetime | None
) -> list[GateReason]:
    if fabric is None:
        return [_of_fabric(Obstacle.MISSING, "was not tested · muster certify")]
    found = []
    if other := _of_another_time(fabric, now, newest):
        found.append(_of_fabric(Obstacle.INVALID, other))
    absent = [name for name in names if name not in fabric.nodes]
    if absent:
        found.append(_of_fabric(Obstacle.MISSING, f"{len(absent)} nodes took no part: {', '.join(absent[:5])}"))
    if fabric.state is State.ERROR:
        found.append(_of_fabric(Obstacle.ERROR, f"its tests broke: {fabric.reason or 'no reason was given'}"))
    elif fabric.state is State.NOT_EVALUATED:
        found.append(_of_fabric(Obstacle.MISSING, f"was not judged: {fabric.reason or 'no reason was given'}"))
    elif fabric.state is not State.PASS:
        faults = fabric.faults or (fabric.reason or "no reason was given",)
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        found.append(_of_fabric(Obstacle.FAILED, f"{'; '.join(faults[:3])}{more}"))
    if wanted is CertificateClass.PRODUCTION and fabric.simulated:
        found.append(_of_fabric(Obstacle.INVALID, f"was not real: {', '.join(fabric.simulated)}"))
    return found


def _of_another_time(fabric: FabricResult, now: datetime, newest: datetime | None) -> str:
    """Why a result is not what the newest certificate, issued at `newest`, rests on; empty where it may be."""
    when = f"{fabric.finished:%Y-%m-%d %H:%M:%SZ}"
    if fabric.finished - CLOCK_TOLERANCE > now:
        return f"was tested at {when}, which is still to come · compare this machine's clock, then muster certify"
    if newest is not None and newest - fabric.finished > FRESH:
        return (
            f"was last tested at {when}, long before the newest certificate, of {newest:%Y-%m-%d %H:%M:%SZ}"
            " · that run's result is missing: run this where it was made, or muster certify"
        )
    return ""


def _of_fabric(obstacle: Obstacle, message: str) -> GateReason:
    return GateReason(subject="fabric", obstacle=obstacle, message=message)
