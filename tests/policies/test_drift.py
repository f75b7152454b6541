"""What is no longer as it was, and what nobody can tell."""

from typing import Any

import pytest
from sample_runs import NOW, examination, identity, verdict, verdicts

from policies.drift import (
    FACTS,
    Baseline,
    DriftReport,
    HostForecast,
    Layer,
    LayerState,
    Present,
    ResourceForecast,
    TaskEffect,
    TaskForecast,
    compare,
    facts,
)
from policies.exits import Exit
from policies.identity import identify
from policies.measurement import Measurement, Outcome
from policies.verdict import Severity, State

NODES = ("gpu-0", "gpu-1")
HELD = {node: identify(examination(node)).digest for node in NODES}
URN = "urn:pulumi:lab::muster::muster:index:Machine::"


def baseline(node: str) -> Baseline:
    return Baseline(identity=identify(examination(node)), verdicts=verdicts(node))


def present(node: str, **changed: Any) -> Present:
    return Present(**({"identity": identify(examination(node)), "verdicts": verdicts(node)} | changed))


def resource(node: str, operation: str = "same") -> ResourceForecast:
    return ResourceForecast(urn=f"{URN}{node}", name=node, kind="machine", operation=operation)


def compared(**changed: Any) -> DriftReport:
    told: dict[str, Any] = {
        "nodes": NODES,
        "held": HELD,
        "then": {node: baseline(node) for node in NODES},
        "now": {node: present(node) for node in NODES},
        "check": {node: HostForecast(host=node, ok=50) for node in NODES},
        "refresh": tuple(resource(node) for node in NODES),
        "measured": NOW,
    }
    return compare(**(told | changed))


def check(*tasks: TaskForecast, **changed: Any) -> dict[str, HostForecast]:
    told: dict[str, Any] = {"host": "gpu-1", "ok": 49, "tasks": tasks}
    return {"gpu-0": HostForecast(host="gpu-0", ok=50), "gpu-1": HostForecast.model_validate(told | changed)}


def test_a_cluster_of_which_all_is_known_and_nothing_differs_is_in_sync() -> None:
    report = compared()
    assert report.in_sync
    assert report.exit_code is Exit.PASS
    assert report.items == ()
    assert report.voided == {}


@pytest.mark.parametrize(
    ("left_out", "layer"), [("now", "examination"), ("check", "configuration"), ("refresh", "infrastructure")]
)
def test_a_layer_that_was_not_measured_is_never_in_sync(left_out: str, layer: str) -> None:
    report = compared(**{left_out: None})
    assert report.layers[Layer(layer)] is LayerState.NOT_MEASURED
    assert not report.in_sync
    assert report.exit_code is Exit.INCOMPLETE


def test_no_nodes_are_never_in_sync() -> None:
    report = compared(nodes=(), held={}, then={}, now={}, check={}, refresh=())
    assert not report.in_sync
    assert report.exit_code is not Exit.PASS


@pytest.mark.parametrize(
    ("changed", "layer", "state"),
    [
        ({"now": {"gpu-0": present("gpu-0")}}, Layer.EXAMINATION, LayerState.UNKNOWN),
        ({"now": {n: present(n, verdicts=()) for n in NODES}}, Layer.EXAMINATION, LayerState.UNKNOWN),
        ({"now": {n: present(n, verdicts=verdicts(n)[1:]) for n in NODES}}, Layer.EXAMINATION, LayerState.UNKNOWN),
        ({"now": {n: present(n, identity=None) for n in NODES}}, Layer.EXAMINATION, LayerState.UNKNOWN),
        ({"check": {"gpu-0": HostForecast(host="gpu-0", ok=50)}}, Layer.CONFIGURATION, LayerState.UNKNOWN),
        ({"check": check(unreachable="timed out")}, Layer.CONFIGURATION, LayerState.UNKNOWN),
        ({"check": check(ok=0)}, Layer.CONFIGURATION, LayerState.UNKNOWN),
        ({"check": check(TaskForecast(task="t", effect=TaskEffect.UNKNOWN))}, Layer.CONFIGURATION, LayerState.UNKNOWN),
        ({"check": check(TaskForecast(task="t", effect=TaskEffect.FAILED))}, Layer.CONFIGURATION, LayerState.UNKNOWN),
        ({"check": check(TaskForecast(task="t", effect=TaskEffect.CHANGE))}, Layer.CONFIGURATION, LayerState.DRIFTED),
        ({"refresh": (resource("gpu-0"),)}, Layer.INFRASTRUCTURE, LayerState.UNKNOWN),
        ({"refresh": (resource("gpu-0"), resource("gpu-1", "update"))}, Layer.INFRASTRUCTURE, LayerState.DRIFTED),
    ],
)
def test_what_cannot_be_told_is_unknown_and_what_differs_is_drift(
    changed: dict[str, Any], layer: Layer, state: LayerState
) -> None:
    report = compared(**changed)
    assert report.layers[layer] is state
    assert not report.in_sync
    assert report.exit_code is (Exit.FAIL if state is LayerState.DRIFTED else Exit.INCOMPLETE)
    assert [other for other in Layer if other is not layer and report.layers[other] is not LayerState.IN_SYNC] == []


@pytest.mark.parametrize("state", [State.FAIL, State.ERROR, State.UNREACHABLE, State.NOT_EVALUATED])
def test_a_control_that_no_longer_counts_voids_the_certificate_of_that_node_only(state: State) -> None:
    report = compared(
        now={"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", verdicts=verdicts("gpu-1", gpu__count=state))}
    )
    (item,) = report.items
    assert (item.node, item.subject, item.was, item.now) == ("gpu-1", "gpu.count", "pass", state.value)
    assert item.known is (state is State.FAIL)
    assert list(report.voided) == ["gpu-1"]


def test_a_failed_warning_is_drift_that_voids_nothing() -> None:
    warned = (*verdicts("gpu-1")[1:], verdict("gpu.count", "gpu-1", State.FAIL, severity=Severity.WARNING))
    report = compared(now={"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", verdicts=warned)})
    assert report.layers[Layer.EXAMINATION] is LayerState.DRIFTED
    assert report.voided == {}


def test_other_hardware_voids_the_certificate_and_says_what_was_exchanged() -> None:
    told = identity("gpu-1")
    told["gpus"][0] = "GPU-99999999-0000-4000-8000-000000000000"
    exchanged = identify(examination("gpu-1", identity=told))
    report = compared(now={"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", identity=exchanged)})
    (item,) = report.items
    assert item.severity is Severity.CRITICAL
    assert "gpu-99999999-0000-4000-8000-000000000000 is new" in item.reason
    assert list(report.voided) == ["gpu-1"]


def test_a_machine_that_is_gone_voids_its_certificate_and_a_network_that_is_gone_none() -> None:
    report = compared(refresh=(resource("gpu-0"), resource("gpu-1", "delete"), resource("rail-0", "delete")))
    assert {(item.node, item.voids) for item in report.items} == {("gpu-1", True), ("rail-0", False)}
    assert all(item.now == "gone" for item in report.items)


def test_what_became_better_is_told_and_is_no_drift() -> None:
    was = Baseline(
        identity=identify(examination("gpu-1")),
        verdicts=(*verdicts("gpu-1")[1:], verdict("gpu.count", "gpu-1", State.FAIL, severity=Severity.WARNING)),
    )
    report = compared(then={"gpu-0": baseline("gpu-0"), "gpu-1": was})
    assert report.in_sync
    assert [(item.node, item.was, item.now) for item in report.better] == [("gpu-1", "fail", "pass")]


def test_a_node_that_was_never_certified_is_compared_with_the_controls() -> None:
    now = {"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", verdicts=verdicts("gpu-1", gpu__count=State.FAIL))}
    report = compared(held={"gpu-0": HELD["gpu-0"]}, then={"gpu-0": baseline("gpu-0")}, now=now)
    assert [(item.node, item.was) for item in report.items] == [("gpu-1", None)]


OTHER = identify(examination("gpu-9"))


@pytest.mark.parametrize("kept", ["whole", "missing", "of another certificate"])
def test_other_hardware_is_found_whatever_became_of_the_baseline(kept: str) -> None:
    then = {node: baseline(node) for node in NODES}
    if kept == "missing":
        del then["gpu-1"]
    elif kept == "of another certificate":
        then["gpu-1"] = Baseline(identity=OTHER, verdicts=verdicts("gpu-1"))
    report = compared(then=then, now={"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", identity=OTHER)})
    assert list(report.voided) == ["gpu-1"]
    assert report.items[0].subject == "identity"
    assert report.exit_code is Exit.FAIL
    same = compared(then=then)
    assert same.in_sync is (kept == "whole"), "how it was is not known"
    assert same.voided == {}
    assert {item.subject for item in same.items} == ({"baseline"} if kept != "whole" else set())


def test_a_certificate_that_does_not_verify_and_no_baseline_leave_the_identity_unknown() -> None:
    report = compared(held=HELD | {"gpu-1": None}, then={"gpu-0": baseline("gpu-0")})
    assert {(item.node, item.subject, item.known) for item in report.items} == {
        ("gpu-1", "identity", False),
        ("gpu-1", "baseline", False),
    }
    assert report.exit_code is Exit.INCOMPLETE
    swapped = {"gpu-0": present("gpu-0"), "gpu-1": present("gpu-1", identity=OTHER)}
    assert list(compared(held=HELD | {"gpu-1": None}, now=swapped).voided) == ["gpu-1"], "the baseline tells it"


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize(
    ("was", "now", "exit_code"),
    [
        ("a", "a", Exit.PASS),
        (None, None, Exit.PASS),
        ("a", "b", Exit.FAIL),
        ("a", None, Exit.INCOMPLETE),
        (None, "a", Exit.INCOMPLETE),
    ],
)
def test_a_fact_that_differs_from_the_certified_is_drift_and_half_of_one_is_unknown(
    fact: str, was: str | None, now: str | None, exit_code: Exit
) -> None:
    """A rule that lets another source in on the same port passes every control."""

    def told(value: str | None) -> dict[str, str]:
        return {fact: value} if value else {}

    then = {node: baseline(node).model_copy(update={"facts": told(was)}) for node in NODES}
    report = compared(then=then, now={node: present(node, facts=told(now)) for node in NODES})
    assert report.exit_code is exit_code
    assert {item.subject for item in report.items} == (set() if exit_code is Exit.PASS else {fact})
    assert report.voided == {}, "it is told, and closes nobody: the controls did not break"


def test_only_what_was_measured_is_a_fact() -> None:
    measured = Measurement(measure="firewall.rules_digest", outcome=Outcome.MEASURED, value="a")
    silent = Measurement(measure="machine.firmware", outcome=Outcome.UNMEASURABLE, reason="a container")
    assert facts(examination(measurements=(measured, silent))) == {"firewall.rules_digest": "a"}
    assert facts(examination(measurements=(measured, measured))) == {}
