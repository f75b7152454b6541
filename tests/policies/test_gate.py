"""Go or no-go, by what each node holds."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sample_runs import DIGESTS, NOW, PLAN, SIGNER, STRANGER, candidate, cluster, examination, fabric, replan

from policies.exits import Exit
from policies.gate import GateDecision, Obstacle, gate
from policies.identity import IdentityError, identify
from policies.issue import FRESH, issue
from policies.refusal import Refusal
from policies.verdict import State
from spec.deployment import CertificateClass
from spec.plan import derive
from spec.schema import Role

HELD = {name: issue(candidate(name), SIGNER, NOW) for name in ("gpu-0", "gpu-1")}
IDENTITIES = {name: identify(examination(name)).digest for name in HELD}
LIFETIME = PLAN.spec.certificate.lifetime
LAB = CertificateClass.LAB
REFUSED = {"gpu-1": Refusal(node="gpu-1", at=NOW, why="gpu.count: fail")}


def decide(now: datetime = NOW, wanted: CertificateClass = LAB, **changed: Any) -> GateDecision:
    told: dict[str, Any] = {
        "plan": PLAN,
        "envelopes": HELD,
        "trusted": [SIGNER.public_key],
        "fabric": fabric(),
        "pins": DIGESTS.pins,
        "images": {},
        "identities": IDENTITIES,
    }
    return gate(wanted=wanted, now=now, **(told | changed))


def test_go_needs_every_compute_node_and_no_other() -> None:
    decision = decide()
    assert decision.go
    assert decision.exit_code is Exit.PASS
    assert [each.node for each in decision.ready] == ["gpu-0", "gpu-1"]
    assert "GPUs are simulated" in decision.ready[0].simulated


def test_a_decision_says_whether_hardware_was_looked_at() -> None:
    assert decide().identified
    assert not decide(identities=None).identified


@pytest.mark.parametrize(
    ("changed", "obstacle", "code", "says"),
    [
        ({"envelopes": {}}, Obstacle.MISSING, Exit.INCOMPLETE, "holds no certificate"),
        ({"envelopes": {"gpu-0": HELD["gpu-0"]}}, Obstacle.MISSING, Exit.INCOMPLETE, "holds no certificate"),
        ({"envelopes": HELD | {"gpu-1": HELD["gpu-0"]}}, Obstacle.INVALID, Exit.INVALID, "issued to gpu-0"),
        ({"envelopes": HELD | {"gpu-1": b"{}"}}, Obstacle.INVALID, Exit.INVALID, "not a certificate"),
        ({"trusted": [STRANGER.public_key]}, Obstacle.INVALID, Exit.INVALID, "not trusted"),
        ({"trusted": []}, Obstacle.INVALID, Exit.INVALID, "not trusted"),
        ({"wanted": CertificateClass.PRODUCTION}, Obstacle.INVALID, Exit.INVALID, "production is asked for"),
        ({"now": NOW + LIFETIME}, Obstacle.INVALID, Exit.INVALID, "expired"),
        ({"now": NOW - timedelta(days=1)}, Obstacle.INVALID, Exit.INVALID, "still to come"),
        ({"lasting": LIFETIME}, Obstacle.INVALID, Exit.INVALID, "before the run ends"),
        ({"identities": {}}, Obstacle.ERROR, Exit.ERROR, "could not be identified now: it was not looked at"),
        (
            {"identities": IDENTITIES | {"gpu-1": IdentityError("timed out")}},
            Obstacle.ERROR,
            Exit.ERROR,
            "could not be identified now: timed out",
        ),
        ({"identities": IDENTITIES | {"gpu-1": "0" * 64}}, Obstacle.INVALID, Exit.INVALID, "other hardware"),
        ({"pins": "0" * 64}, Obstacle.INVALID, Exit.INVALID, "those of the spec are now 000000000000…"),
        ({"images": {"gpu-1": "e" * 64}}, Obstacle.INVALID, Exit.INVALID, "deployed from eeeeeeeeeeee…"),
        ({"unusable": {"gpu-1": "by scheduler, x"}}, Obstacle.FAILED, Exit.FAIL, "would get no job: by scheduler, x"),
        ({"refused": REFUSED}, Obstacle.FAILED, Exit.FAIL, f"refused at {NOW:%Y-%m-%d %H:%M:%SZ}: gpu.count: fail"),
        ({"refused": REFUSED, "envelopes": {}}, Obstacle.FAILED, Exit.FAIL, "gpu.count: fail"),
        ({"refused": REFUSED, "identities": {}}, Obstacle.FAILED, Exit.ERROR, "gpu.count: fail"),
        ({"fabric": None}, Obstacle.MISSING, Exit.INCOMPLETE, "was not tested"),
        ({"fabric": fabric(nodes=("gpu-0",))}, Obstacle.MISSING, Exit.INCOMPLETE, "took no part: gpu-1"),
        ({"fabric": fabric(finished=NOW + timedelta(seconds=6))}, Obstacle.INVALID, Exit.INVALID, "still to come"),
        (
            {"fabric": fabric(finished=NOW - FRESH - timedelta(seconds=1))},
            Obstacle.INVALID,
            Exit.INVALID,
            "long before the newest certificate",
        ),
        ({"fabric": fabric(state=State.NOT_EVALUATED)}, Obstacle.MISSING, Exit.INCOMPLETE, "was not judged"),
        ({"fabric": fabric(state=State.ERROR, reason="rank died")}, Obstacle.ERROR, Exit.ERROR, "rank died"),
        ({"fabric": fabric(state=State.FAIL, reason="slow")}, Obstacle.FAILED, Exit.FAIL, "slow"),
    ],
)
def test_each_of_these_shuts_the_gate(changed: dict[str, Any], obstacle: Obstacle, code: Exit, says: str) -> None:
    decision = decide(**changed)
    assert not decision.go
    assert decision.exit_code is code
    assert any(each.obstacle is obstacle and says in each.message for each in decision.reasons), decision.reasons


def test_a_certificate_that_is_newer_than_a_refusal_counts() -> None:
    assert decide(refused={"gpu-1": Refusal(node="gpu-1", at=NOW - timedelta(seconds=1), why="gpu.count: fail")}).go


def test_a_certificate_must_outlast_the_run_by_at_least_an_instant() -> None:
    assert decide(lasting=LIFETIME - timedelta(seconds=1)).go
    assert not decide(lasting=LIFETIME).go


def test_a_spec_that_changed_since_is_no_go() -> None:
    changed = replan(PLAN, digest="0" * 64)
    decision = decide(plan=changed)
    assert not decision.go
    assert {each.subject for each in decision.reasons} == {"gpu-0", "gpu-1"}
    assert all("issued for spec" in each.message for each in decision.reasons)


def test_a_cluster_without_compute_nodes_is_an_error_and_never_a_go() -> None:
    nodes = tuple(node for node in PLAN.nodes if not node.has(Role.COMPUTE))
    decision = decide(plan=replan(PLAN, nodes=nodes))
    assert not decision.go
    assert decision.exit_code is Exit.ERROR
    assert "no node has the compute role" in decision.reasons[0].message


def test_an_empty_decision_is_not_a_go() -> None:
    empty = GateDecision(cluster="lab", wanted=LAB, decided=NOW, lasting_until=NOW, expected=0, ready=(), reasons=())
    assert not empty.go
    assert empty.exit_code is not Exit.PASS
    assert not decide().model_copy(update={"ready": decide().ready[:1]}).go


def test_every_node_has_its_own_reason() -> None:
    plan = derive(cluster(gpu=16))
    decision = decide(plan=plan, envelopes={}, fabric=fabric(plan))
    assert len(decision.reasons) == 16
    assert decision.expected == 16
