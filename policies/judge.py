"""From measurements to verdicts. Pure; the time is an argument. Nothing a node sends can raise, or pass by accident."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from policies.answer import Holding, answer
from policies.catalogue import Catalogue
from policies.control import Control
from policies.measurement import Examination, Outcome
from policies.pins import PinSet, expectations_of
from policies.reading import PolicyError
from policies.verdict import State, Verdict, WaiverNote
from policies.waivers import Waivers
from policies.wording import bounded, one_line, words
from spec.plan import LACKING, ClusterPlan, Expectations, Node

FRESH = timedelta(hours=1)
"""How old an examination may be when it is judged: the fabric's tests come between it and the certificate."""


def judge(
    control: Control,
    node: Node,
    expectations: Expectations,
    examination: Examination | None,
    waivers: Waivers,
    now: datetime,
    fresh: timedelta = FRESH,
) -> Verdict:
    """The verdict of one control on one node. Never raises on a bad measurement.

    `not_applicable` where the control is not about the node; then `unreachable`, `not_evaluated` (no measurement, one
    told twice, one that is stale, or one that passes in an examination that was cut off), `error` (the node could not
    tell, or told something of the wrong type), and only then `pass` or `fail`. Only a failure can be `waived`.
    """
    exempt = _exempt(control, node, expectations)
    verdict = Verdict(
        control=control.id,
        node=node.name,
        state=State.NOT_EVALUATED,
        severity=control.severity,
        title=control.title,
        expected="" if exempt else words(control.expect, expectations),
    )

    def says(state: State, reason: str = "", found: JsonValue = None) -> Verdict:
        repair = "" if state.counts else control.repair.do
        return verdict.model_copy(update={"state": state, "reason": reason, "found": found, "repair": repair})

    if exempt:
        return says(State.NOT_APPLICABLE, exempt)
    if examination is None:
        return says(State.NOT_EVALUATED, "the node was not examined")
    if examination.node != node.name:
        return says(State.ERROR, one_line(f"the examination is of {examination.node}"))
    if examination.unreachable is not None:
        return says(State.UNREACHABLE, one_line(examination.unreachable))
    if reason := _stale(examination, now, fresh):
        return says(State.NOT_EVALUATED, reason)
    measured = examination.measured(control.measure)
    if measured is None:
        told = sum(each.measure == control.measure for each in examination.measurements)
        reason = f"measured {told} times, which contradicts itself" if told else "the suite did not measure it"
        return says(State.NOT_EVALUATED, f"{control.measure}: {reason}")
    verdict = verdict.model_copy(update={"simulated": measured.simulated})
    if measured.outcome is not Outcome.MEASURED:
        return says(State.ERROR, one_line(measured.reason or measured.outcome.value))
    found = answer(control.expect, measured.value, expectations)
    if found.holding is Holding.MALFORMED:
        return says(State.ERROR, one_line(found.why), found.broke)
    if found.holding is Holding.BROKEN:
        return _waived(says(State.FAIL, one_line(found.why), found.broke), waivers, now)
    if not examination.complete:
        return says(State.NOT_EVALUATED, one_line(f"the examination is not complete: {examination.fault or 'cut off'}"))
    return says(State.PASS, found=bounded(measured.value))


def judge_node(
    catalogue: Catalogue,
    node: Node,
    expectations: Expectations,
    examination: Examination | None,
    waivers: Waivers,
    now: datetime,
    fresh: timedelta = FRESH,
) -> tuple[Verdict, ...]:
    """The verdicts of all controls on one node, in the catalogue's order."""
    return tuple(judge(control, node, expectations, examination, waivers, now, fresh) for control in catalogue)


def judge_cluster(
    catalogue: Catalogue,
    plan: ClusterPlan,
    pins: PinSet,
    examinations: Iterable[Examination],
    waivers: Waivers,
    now: datetime,
    nodes: Sequence[str] | None = None,
    fresh: timedelta = FRESH,
) -> dict[str, tuple[Verdict, ...]]:
    """The verdicts of all controls on all nodes of the plan, or on those named, by node: of each, whoever was examined.

    A node without an examination, or with two, is `not_evaluated` throughout. Raises PolicyError where there is no
    node, LookupError where a name is none.
    """
    chosen = plan.nodes if nodes is None else tuple(plan.node(name) for name in nodes)
    if not chosen:
        raise PolicyError([f"{plan.name}: no node to judge; name one, or declare one"])
    told: dict[str, list[Examination]] = {}
    for each in examinations:
        told.setdefault(each.node, []).append(each)
    single = {name: runs[0] for name, runs in told.items() if len(runs) == 1}
    return {
        node.name: judge_node(
            catalogue, node, expectations_of(plan, node, pins), single.get(node.name), waivers, now, fresh
        )
        for node in chosen
    }


def _exempt(control: Control, node: Node, expectations: Expectations) -> str:
    """Why a control is not about a node; empty where it is."""
    role, machine, expects = control.applies_to.role, control.applies_to.machine, control.applies_to.expects
    if role is not None and not node.has(role):
        return f"for nodes with the role {role.value}"
    if machine is not None and node.machine is not machine:
        return f"for machines of the kind {machine.value}, and this is a {node.machine.value}"
    for capability in control.requires:
        if capability not in node.capabilities:
            return LACKING[capability]
    if expects is not None and not expectations.get(expects):
        return f"the spec expects no {expects} of this node"
    return ""


def _stale(examination: Examination, now: datetime, fresh: timedelta) -> str:
    """Why an examination is of another time; empty where it is of now. One that was cut off counts from its start."""
    age = now - (examination.finished or examination.started)
    if age < timedelta(0):
        return "the examination is dated in the future: a clock is wrong"
    if age > fresh:
        return f"the examination is {int(age.total_seconds())} s old, more than {int(fresh.total_seconds())} s"
    return ""


def _waived(failed: Verdict, waivers: Waivers, now: datetime) -> Verdict:
    waiver = waivers.find(failed.control, failed.node)
    if waiver is None:
        return failed
    if not waiver.lasts(now):
        return failed.model_copy(
            update={"reason": f"{failed.reason} · waiver {waiver.id} expired at {waiver.expires.isoformat()}"}
        )
    note = WaiverNote(id=waiver.id, reason=waiver.reason, expires=waiver.expires, real=failed.state)
    return failed.model_copy(update={"state": State.WAIVED, "waiver": note})
