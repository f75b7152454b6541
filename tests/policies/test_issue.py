"""Who earns a certificate, and everything that keeps one from it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue
from sample_runs import (
    CONTROLS,
    DIGESTS,
    NOW,
    PLAN,
    SIGNER,
    candidate,
    deployment,
    examination,
    fabric,
    identity,
    replan,
    sweep,
    verdict,
    verdicts,
)

from policies.certificate import Certificate, verify
from policies.fabric import FaultKind, Finding
from policies.issue import FRESH, Candidate, Refused, issue, refusals
from policies.measurement import Measurement, Outcome
from policies.verdict import Severity, State, WaiverNote
from spec.deployment import CertificateClass
from spec.schema import MachineKind, Substrate


def held(asked: Candidate) -> Certificate:
    return verify(issue(asked, SIGNER, NOW), [SIGNER.public_key], NOW)


def measured(value: JsonValue) -> Measurement:
    return Measurement(measure="gpu.count", outcome=Outcome.MEASURED, value=value)


def waived(days: float, real: State = State.FAIL) -> dict[str, Any]:
    return {"waiver": WaiverNote(id="w-1", reason="the host's clock", expires=NOW + timedelta(days=days), real=real)}


def with_verdict(**changed: Any) -> Candidate:
    return candidate(verdicts=(*verdicts()[:-1], verdict(CONTROLS[-1], **changed)))


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("state", [State.FAIL, State.ERROR, State.UNREACHABLE, State.NOT_EVALUATED])
def test_only_a_failed_warning_may_be_certified_and_it_is_no_pass(state: State, severity: Severity) -> None:
    asked = with_verdict(state=state, severity=severity, reason="because")
    if (state, severity) == (State.FAIL, Severity.WARNING):
        certificate = held(asked)
        assert certificate.terms.warned == (CONTROLS[-1],)
        assert CONTROLS[-1] not in certificate.passed
    else:
        with pytest.raises(Refused, match=f"{CONTROLS[-1]}: {state.value}: because"):
            issue(asked, SIGNER, NOW)


def test_what_is_waived_or_does_not_apply_is_told_apart_from_what_passed() -> None:
    certificate = held(with_verdict(state=State.WAIVED, **waived(30)))
    assert certificate.terms.waived == (CONTROLS[-1],)
    assert CONTROLS[-1] not in certificate.passed
    certificate = held(with_verdict(state=State.NOT_APPLICABLE, reason="a container shares its host's clock"))
    assert certificate.terms.not_applicable == (CONTROLS[-1],)


@pytest.mark.parametrize("age", [FRESH + timedelta(seconds=1), timedelta(seconds=-1)])
def test_fabric_tests_of_another_time_earn_nothing(age: timedelta) -> None:
    asked = candidate(fabric=fabric(finished=NOW - age))
    assert any("fabric's tests are not from" in each for each in refusals(asked, NOW))
    assert not refusals(candidate("control-0", fabric=fabric(finished=NOW - age)), NOW), "it is not on the fabric"
    assert not refusals(candidate(fabric=fabric(finished=NOW - FRESH)), NOW)


def test_a_certificate_does_not_outlast_the_waiver_that_it_needed() -> None:
    assert held(with_verdict(state=State.WAIVED, **waived(2))).expires == NOW + timedelta(days=2)
    assert held(with_verdict(state=State.WAIVED, **waived(30))).expires == NOW + PLAN.spec.certificate.lifetime


@pytest.mark.parametrize("note", [{}, waived(0), waived(-1)])
def test_a_waiver_that_is_over_or_missing_waives_nothing(note: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="waiver is missing or over"):
        issue(with_verdict(state=State.WAIVED, **note), SIGNER, NOW)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"verdicts": verdicts()[1:]}, "1 of 4 controls were not judged: gpu.count"),
        ({"verdicts": ()}, "4 of 4 controls were not judged"),
        ({"verdicts": (*verdicts(), verdicts()[0])}, "judged twice: gpu.count"),
        ({"verdicts": (*verdicts(), verdict("own.idea"))}, "not in the catalogue: own.idea"),
        ({"verdicts": (*verdicts()[1:], verdict("gpu.count", "gpu-1"))}, "the verdict is of gpu-1"),
        (
            {"verdicts": verdicts(**{each.replace(".", "__"): State.NOT_APPLICABLE for each in CONTROLS})},
            "nothing passed",
        ),
        ({"controls": frozenset(), "verdicts": ()}, "the catalogue is empty"),
        ({"examination": examination(unreachable="timed out")}, "could not be examined: timed out"),
        ({"examination": examination(complete=False)}, "broke off"),
        ({"examination": examination("gpu-1")}, "the examination is of gpu-1"),
        ({"examination": examination(finished=None)}, "not from the last 1:00:00"),
        ({"examination": examination(finished=NOW - FRESH - timedelta(seconds=1))}, "not from the last"),
        ({"examination": examination(finished=NOW + timedelta(seconds=1))}, "not from the last"),
        ({"examination": examination(suite_digest="d" * 64)}, "another suite"),
        ({"examination": examination(identity={})}, "told no identity"),
        ({"examination": examination(identity=identity("gpu-0", 7))}, "names 7 GPUs of 8"),
        ({"examination": examination(identity=identity("gpu-0") | {"gpus": None})}, "could not read its gpus"),
        (
            {"examination": examination(measurements=(measured(2**60),))},
            "no canonical form",
        ),
        ({"deployment": deployment(spec_digest="0" * 64)}, "edited since it was deployed"),
        ({"deployment": deployment(name="site")}, "deployment is of cluster site"),
        ({"deployment": deployment(nodes=("gpu-1",))}, "not a node of this cluster"),
        ({"digests": DIGESTS.model_copy(update={"spec": "0" * 64})}, "another spec"),
        ({"digests": DIGESTS.model_copy(update={"image": "e" * 64})}, "another image"),
        ({"deployment": deployment(images={"gpu-0": "e" * 64})}, "another image"),
        ({"fabric": None}, "the fabric was not tested"),
        ({"fabric": fabric(nodes=("gpu-1",))}, "took no part"),
        ({"fabric": fabric(state=State.ERROR, reason="rank 3 died")}, "ended as error: rank 3 died"),
        ({"fabric": fabric(state=State.FAIL)}, "no fault was traced"),
    ],
)
def test_each_of_these_keeps_a_node_out(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused) as refused:
        issue(replace(candidate(), **changed), SIGNER, NOW)
    assert any(says in reason for reason in refused.value.reasons), refused.value.reasons


def test_all_reasons_are_told_not_only_the_first() -> None:
    asked = candidate(examination=examination(complete=False), verdicts=verdicts(gpu__count=State.FAIL), fabric=None)
    assert len(refusals(asked, NOW)) == 3


@pytest.mark.parametrize(
    ("kind", "nodes", "refused"),
    [
        (FaultKind.NODE, ("gpu-0",), True),
        (FaultKind.NODE, ("gpu-1",), False),
        (FaultKind.RAIL, ("gpu-0",), True),
        (FaultKind.RAIL, (), True),
        (FaultKind.PATH, (), False),
        (FaultKind.LEAF, (), False),
        (FaultKind.LEAF, ("gpu-0",), True),
        (FaultKind.INCONCLUSIVE, (), True),
        (FaultKind.INCONCLUSIVE, ("gpu-1",), False),
    ],
)
def test_a_fault_in_the_fabric_keeps_out_the_nodes_that_it_may_be(
    kind: FaultKind, nodes: tuple[str, ...], refused: bool
) -> None:
    finding = Finding(kind=kind, subject="here", nodes=nodes, evidence="slow")
    assert bool(refusals(candidate(fabric=fabric(state=State.FAIL, findings=(finding,))), NOW)) is refused


def test_a_node_without_the_compute_role_needs_no_fabric() -> None:
    assert refusals(candidate("storage-0", fabric=None), NOW) == ()


def test_a_fabric_passes_only_by_its_numbers() -> None:
    nodes = ("gpu-0", "gpu-1")
    points = sweep(nodes).points
    for bad in (
        {"pairs": (fabric().pairs[0].model_copy(update={"gbps": 0.7}),)},
        {"pairs": (fabric().pairs[0].model_copy(update={"gbps": None}),)},
        {"sweeps": ()},
        {"sweeps": (sweep(nodes, plateau=None),)},
        {"sweeps": (sweep(nodes, plateau=0.09),)},
        {"sweeps": (sweep(nodes, points=()),)},
        {"sweeps": (sweep(nodes, points=(points[0].model_copy(update={"wrong": 1}), *points[1:])),)},
        {"sweeps": (sweep(nodes, points=(points[0].model_copy(update={"repeats": 2}), *points[1:])),)},
        {"findings": (Finding(kind=FaultKind.PATH, subject="x", evidence="y"),)},
        {"state": State.WAIVED},
    ):
        with pytest.raises(ValueError, match=r"said to pass|cannot be"):
            fabric(**bad)


def on_hardware(**changed: Any) -> Candidate:
    """The lab's spec as if it were a site of real hosts."""
    spec = PLAN.spec.model_copy(update={"substrate": Substrate.STATIC})
    nodes = tuple(node.model_copy(update={"machine": MachineKind.HOST}) for node in PLAN.nodes)
    plan = replan(PLAN, spec=spec, nodes=nodes)
    told: dict[str, Any] = {
        "plan": plan,
        "deployment": deployment(
            plan, substrate=Substrate.STATIC, certificate_class=CertificateClass.PRODUCTION, simulated=()
        ),
        "examination": examination(measurements=(measured(8),)),
        "fabric": fabric(simulated=()),
    }
    return replace(candidate(), **(told | changed))


def test_real_hardware_earns_production() -> None:
    assert held(on_hardware()).certificate_class is CertificateClass.PRODUCTION


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"plan": PLAN}, "a lab never"),
        ({"deployment": deployment(certificate_class=CertificateClass.PRODUCTION, simulated=())}, "a lab never"),
        ({"examination": examination()}, "gpu measurements are simulated"),
        ({"fabric": fabric()}, "gloo stands in for NCCL"),
        ({"verdicts": tuple(each.model_copy(update={"simulated": True}) for each in verdicts())}, "simulated"),
        (
            {
                "deployment": deployment(
                    substrate=Substrate.STATIC, certificate_class=CertificateClass.PRODUCTION, simulated=("GPUs",)
                )
            },
            "not real, so not for production: GPUs",
        ),
    ],
)
def test_nothing_simulated_ever_earns_production(changed: dict[str, Any], says: str) -> None:
    assert any(says in reason for reason in refusals(on_hardware(**changed), NOW))


def test_a_container_never_earns_production() -> None:
    nodes = tuple(node.model_copy(update={"machine": MachineKind.CONTAINER}) for node in PLAN.nodes)
    plan = replan(on_hardware().plan, nodes=nodes)
    assert any("a container never" in reason for reason in refusals(on_hardware(plan=plan), NOW))


def test_a_lab_deployment_issues_lab_and_says_so() -> None:
    assert held(candidate()).certificate_class is CertificateClass.LAB
