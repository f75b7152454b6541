"""What is no longer as it was certified, over three layers: the machines, their configuration, and what they measure.

A layer that was not looked at is `not_measured`, and one in which something could not be told is `unknown`. Only when
all three were looked at, in full, and nothing differed, is a cluster in sync.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from policies.exits import Exit
from policies.identity import Identity
from policies.measurement import Examination, Outcome
from policies.verdict import Severity, State, Verdict

FACTS = {
    "firewall.rules_digest": "a rule is another; the controls judge which ports are open, not to whom",
    "machine.firmware": "the firmware was exchanged",
}
"""Measurements that no control judges by a value of its own, and what it means that one differs from the certified."""


class Layer(StrEnum):
    """Where drift is looked for."""

    INFRASTRUCTURE = "infrastructure"
    """Machines and networks: a Pulumi refresh."""
    CONFIGURATION = "configuration"
    """Files, packages and services: Ansible's check mode."""
    EXAMINATION = "examination"
    """Identity and controls: the node suite."""


class LayerState(StrEnum):
    """How a layer stands."""

    IN_SYNC = "in_sync"
    DRIFTED = "drifted"
    UNKNOWN = "unknown"
    NOT_MEASURED = "not_measured"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskEffect(StrEnum):
    """What Ansible's check mode says that a task would do."""

    CHANGE = "change"
    UNKNOWN = "unknown"
    """The task does not run in check mode, so nobody can tell."""
    FAILED = "failed"
    """The task failed in check mode."""


class TaskForecast(_Model):
    """One task that is not known to leave its host as it is."""

    task: str
    """`role : name of the task`."""
    effect: TaskEffect
    detail: str = ""


class HostForecast(_Model):
    """What check mode said of one host. `ok` counts tasks that would change nothing."""

    host: str
    ok: int
    tasks: tuple[TaskForecast, ...] = ()
    unreachable: str | None = None


class ResourceForecast(_Model):
    """One resource as a Pulumi refresh found it."""

    urn: str
    name: str
    """The resource's own name, which for a machine is its node's."""
    kind: str
    operation: str
    """Pulumi's word: `same`, `update`, `delete`, …"""
    detail: str = ""


class Baseline(_Model):
    """A node when it was certified."""

    identity: Identity
    verdicts: tuple[Verdict, ...]
    facts: dict[str, JsonValue] = {}
    """Those of FACTS that could be measured."""


class Present(_Model):
    """A node as it was examined now; `identity` is none where it could not be established."""

    identity: Identity | None
    identity_error: str = ""
    verdicts: tuple[Verdict, ...]
    facts: dict[str, JsonValue] = {}


class DriftItem(_Model):
    """One thing that is not as it was, or of which nobody knows."""

    node: str
    """A node's name, or a resource's that is no node."""
    layer: Layer
    subject: str
    """A control's id, `identity`, a task, or a resource's kind."""
    was: JsonValue
    now: JsonValue
    severity: Severity
    known: bool = True
    """False where it cannot be told whether it drifted."""
    voids: bool = False
    """Whether the node's certificate no longer holds."""
    reason: str = ""
    repair: str = ""


class DriftReport(_Model):
    """All layers of all nodes at one time."""

    measured: AwareDatetime
    layers: dict[Layer, LayerState]
    items: tuple[DriftItem, ...]
    better: tuple[DriftItem, ...] = ()
    """What changed for the better: no drift, but told."""

    @property
    def in_sync(self) -> bool:
        """Every layer was measured in full, and nothing differs."""
        return all(self.layers.get(layer) is LayerState.IN_SYNC for layer in Layer)

    @property
    def voided(self) -> dict[str, tuple[str, ...]]:
        """Nodes whose certificate no longer holds, and why: the pool closes them."""
        found: dict[str, tuple[str, ...]] = {}
        for item in self.items:
            if item.voids:
                found[item.node] = (*found.get(item.node, ()), f"{item.subject}: {item.reason or 'differs'}")
        return found

    @property
    def exit_code(self) -> Exit:
        """0 in sync, 1 drifted, 4 where no drift is known but not everything could be told."""
        if self.in_sync:
            return Exit.PASS
        return Exit.FAIL if LayerState.DRIFTED in self.layers.values() else Exit.INCOMPLETE


def facts(examination: Examination) -> dict[str, JsonValue]:
    """Those of FACTS that a node could measure, by measure."""
    told = {name: examination.measured(name) for name in FACTS}
    return {name: each.value for name, each in told.items() if each and each.outcome is Outcome.MEASURED}


def compare(
    nodes: tuple[str, ...],
    held: Mapping[str, str | None],
    then: Mapping[str, Baseline],
    now: Mapping[str, Present] | None,
    check: Mapping[str, HostForecast] | None,
    refresh: tuple[ResourceForecast, ...] | None,
    measured: datetime,
) -> DriftReport:
    """The drift of a cluster. Pure.

    Args:
        nodes: every node that the plan has; what is missing of one is unknown, never in sync.
        held: nodes that have a certificate, and the digest of the identity that it was issued to; none where it does
            not verify. A node without a certificate is compared with the controls alone: each must count.
        then: those nodes as they were when they were certified. What is missing of one cannot be told.
        now, check, refresh: the three layers; none where a layer was not looked at.
    """
    better: list[DriftItem] = []
    found = {
        Layer.INFRASTRUCTURE: None if refresh is None else _infrastructure(refresh, nodes),
        Layer.CONFIGURATION: None if check is None else _configuration(nodes, check),
        Layer.EXAMINATION: None if now is None else _examination(nodes, held, then, now, better),
    }
    return DriftReport(
        measured=measured,
        layers={layer: _state(items if nodes else None) for layer, items in found.items()},
        items=tuple(item for items in found.values() for item in items or ()),
        better=tuple(better),
    )


def _state(items: list[DriftItem] | None) -> LayerState:
    if items is None:
        return LayerState.NOT_MEASURED
    if any(item.known for item in items):
        return LayerState.DRIFTED
    return LayerState.UNKNOWN if items else LayerState.IN_SYNC


def _infrastructure(refresh: tuple[ResourceForecast, ...], nodes: tuple[str, ...]) -> list[DriftItem]:
    seen = {each.name for each in refresh}
    found = [
        DriftItem(
            node=each.name,
            layer=Layer.INFRASTRUCTURE,
            subject=each.kind,
            was="as deployed",
            now="gone" if each.operation == "delete" else each.detail or each.operation,
            severity=Severity.CRITICAL if each.name in nodes else Severity.MAJOR,
            voids=each.name in nodes and each.operation in ("delete", "replace"),
            reason=f"pulumi refresh: {each.operation}",
            repair="pulumi up",
        )
        for each in refresh
        if each.operation != "same"
    ]
    return found + [
        _unknown(name, Layer.INFRASTRUCTURE, "resource", "pulumi refresh did not name it")
        for name in nodes
        if name not in seen
    ]


def _configuration(nodes: tuple[str, ...], check: Mapping[str, HostForecast]) -> list[DriftItem]:
    found = []
    for node in nodes:
        host = check.get(node)
        if host is None or host.unreachable:
            reason = (host and host.unreachable) or "check mode did not reach it"
            found.append(_unknown(node, Layer.CONFIGURATION, "host", reason))
        elif host.ok + len(host.tasks) == 0:
            found.append(_unknown(node, Layer.CONFIGURATION, "host", "check mode ran no task on it"))
        else:
            found += [_task(node, task) for task in host.tasks]
    return found


def _task(node: str, task: TaskForecast) -> DriftItem:
    if task.effect is not TaskEffect.CHANGE:
        why = "does not run in check mode" if task.effect is TaskEffect.UNKNOWN else "failed in check mode"
        return _unknown(node, Layer.CONFIGURATION, task.task, task.detail or why)
    return DriftItem(
        node=node,
        layer=Layer.CONFIGURATION,
        subject=task.task,
        was="as converged",
        now=task.detail or "would be changed",
        severity=Severity.MAJOR,
        reason="converging would change it",
        repair="muster converge",
    )


def _examination(
    nodes: tuple[str, ...],
    held: Mapping[str, str | None],
    then: Mapping[str, Baseline],
    now: Mapping[str, Present],
    better: list[DriftItem],
) -> list[DriftItem]:
    found = []
    for node in nodes:
        present, certified = now.get(node), held.get(node)
        baseline = then.get(node) if node in held else None
        if baseline is not None and certified not in (None, baseline.identity.digest):
            baseline = None  # of another certificate: only what is signed counts
        if present is None:
            found.append(_unknown(node, Layer.EXAMINATION, "node", "was not examined", voids=True))
            continue
        if not present.verdicts:
            found.append(_unknown(node, Layer.EXAMINATION, "node", "no control was judged", voids=True))
        if node in held:
            found += _identity(node, certified, baseline.identity if baseline else None, present)
            if baseline is None:
                reason = f"how it was when it was certified is not known · muster certify {node}"
                found.append(_unknown(node, Layer.EXAMINATION, "baseline", reason))
            else:
                found += _facts(node, baseline.facts, present.facts)
        found += _controls(node, baseline.verdicts if baseline else (), present.verdicts, better)
    return found


def _identity(node: str, certified: str | None, was: Identity | None, present: Present) -> list[DriftItem]:
    """Against what is signed; against the baseline where no certificate verifies, which also says what differs."""
    then = certified or (was.digest if was else None)
    if present.identity is None:
        return [_unknown(node, Layer.EXAMINATION, "identity", present.identity_error or "is not known", voids=True)]
    if then is None:
        return [_unknown(node, Layer.EXAMINATION, "identity", "its certificate does not verify, so tells none")]
    if present.identity.digest == then:
        return []
    return [
        DriftItem(
            node=node,
            layer=Layer.EXAMINATION,
            subject="identity",
            was=then,
            now=present.identity.digest,
            severity=Severity.CRITICAL,
            voids=True,
            reason="; ".join(was.differs(present.identity)) if was else "is not the hardware that was certified",
            repair=f"muster certify {node}: other hardware needs a certificate of its own",
        )
    ]


def _facts(node: str, then: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> list[DriftItem]:
    """What differs; unknown where only one of both was measured. What never could be is no drift."""
    found = []
    for name, meaning in FACTS.items():
        if name not in then and name not in now:
            continue
        if name not in then or name not in now:
            when = "was not measured when it was certified" if name not in then else "could not be measured now"
            found.append(_unknown(node, Layer.EXAMINATION, name, f"{when} · muster certify {node}"))
        elif then[name] != now[name]:
            found.append(
                DriftItem(
                    node=node,
                    layer=Layer.EXAMINATION,
                    subject=name,
                    was=then[name],
                    now=now[name],
                    severity=Severity.MAJOR,
                    reason=meaning,
                    repair=f"muster converge {node}; or muster certify {node} if it is meant",
                )
            )
    return found


def _controls(
    node: str, then: tuple[Verdict, ...], now: tuple[Verdict, ...], better: list[DriftItem]
) -> list[DriftItem]:
    before = {verdict.control: verdict for verdict in then}
    found = []
    for verdict in now:
        was = before.pop(verdict.control, None)
        item = _control(node, was, verdict)
        if not verdict.state.counts:
            found.append(item)
        elif was is not None and not was.state.counts:
            better.append(item)
    lost = [_unknown(node, Layer.EXAMINATION, control, "was judged then, is not now", voids=True) for control in before]
    return found + lost


def _control(node: str, was: Verdict | None, now: Verdict) -> DriftItem:
    return DriftItem(
        node=node,
        layer=Layer.EXAMINATION,
        subject=now.control,
        was=was.state.value if was else None,
        now=now.state.value,
        severity=now.severity,
        known=now.state in (State.FAIL, State.PASS, State.WAIVED, State.NOT_APPLICABLE),
        voids=now.keeps_out,
        reason=now.reason or now.expected,
        repair=now.repair,
    )


def _unknown(node: str, layer: Layer, subject: str, reason: str, voids: bool = False) -> DriftItem:
    return DriftItem(
        node=node,
        layer=layer,
        subject=subject,
        was=None,
        now="unknown",
        severity=Severity.MAJOR,
        known=False,
        voids=voids,
        reason=reason,
    )
