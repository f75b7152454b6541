"""The pool follows the certificates: who holds one that verifies now is opened, everybody else is closed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sample_runs
from paper_pool import Slurm

from muster.admission import admit, credentials
from muster.certify import fault, keep
from muster.console import Problem
from muster.standing import Standing
from policies.evidence import Award
from policies.exits import Exit
from policies.fabric import FaultKind, Finding
from policies.verdict import Severity, State
from pool.decision import Standing as Right

Certified = Callable[..., None]


def test_a_certified_node_is_opened_and_one_without_stays_closed(
    cluster: Standing, certified: Certified, slurm: Slurm
) -> None:
    certified("gpu-0")
    nodes, done = admit(cluster, {})
    assert slurm.open == {"gpu-0"}
    assert not nodes["gpu-0"].closed
    assert not any(each.problem for each in done)


def test_a_node_whose_certificate_is_gone_is_closed_with_the_reason_that_users_see(
    cluster: Standing, certified: Certified, slurm: Slurm
) -> None:
    certified("gpu-0", "gpu-1")
    admit(cluster, {})
    cluster.certificate("gpu-1").unlink()
    admit(cluster, {"gpu-1": "gpu.ecc.uncorrected: 2 errors"})
    assert slurm.open == {"gpu-0"}
    assert slurm.nodes["gpu-1"]["reason"].startswith("muster: certificate revoked, gpu.ecc.uncorrected")


def test_a_certificate_is_void_on_other_hardware(cluster: Standing, certified: Certified, slurm: Slurm) -> None:
    certified("gpu-0", "gpu-1")
    swapped = {
        "gpu-0": sample_runs.examination("gpu-0"),
        "gpu-1": sample_runs.examination("gpu-1", identity=sample_runs.identity("gpu-7")),
    }
    assert {name: each.standing for name, each in credentials(cluster, {}, swapped).items()} == {
        "gpu-0": Right.VALID,
        "gpu-1": Right.REVOKED,
    }


def test_a_certificate_is_void_on_a_node_that_is_deployed_from_another_image(
    cluster: Standing, certified: Certified, slurm: Slurm
) -> None:
    certified("gpu-0", "gpu-1")
    anew = replace(cluster, deployment=cluster.deployment.model_copy(update={"images": {"gpu-1": "f" * 64}}))
    admit(anew, {})
    assert slurm.open == {"gpu-0"}
    assert slurm.nodes["gpu-1"]["reason"].startswith("muster: certificate revoked")


def test_a_certificate_is_judged_by_the_image_that_its_node_was_made_from(cluster: Standing) -> None:
    made = replace(cluster, deployment=cluster.deployment.model_copy(update={"images": {"gpu-0": "e" * 64}}))
    assert made.digests_of("gpu-0").image == "e" * 64
    assert made.digests_of("gpu-1").image is None


@pytest.mark.parametrize(
    ("change", "right"),
    [
        (lambda path: path.write_text("{}"), Right.REVOKED),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), Right.REVOKED),
        (lambda path: path.unlink(), Right.NONE),
        (lambda path: path.write_bytes(path.with_name("gpu-1.json").read_bytes()), Right.REVOKED),
    ],
)
def test_a_certificate_that_does_not_verify_never_opens(cluster, certified, slurm, change, right) -> None:
    certified("gpu-0", "gpu-1")
    change(cluster.certificate("gpu-0"))
    assert credentials(cluster, {})["gpu-0"].standing is right
    admit(cluster, {})
    assert "gpu-0" not in slurm.open


def test_an_expired_certificate_closes_an_open_node(cluster: Standing, certified: Certified, slurm: Slurm) -> None:
    certified("gpu-0", now=datetime.now(UTC) - timedelta(days=8))
    slurm.nodes["gpu-0"] |= {"state_flags": [], "reason": ""}
    admit(cluster, {})
    assert slurm.nodes["gpu-0"]["reason"] == "muster: certificate expired"


def test_without_any_key_no_certificate_counts(cluster: Standing, certified: Certified, slurm: Slurm) -> None:
    certified("gpu-0")
    for path in (cluster.deployment.state / "keys").iterdir():
        path.unlink()
    admit(cluster, {})
    assert slurm.open == set()


def test_an_administrators_drain_stays(cluster: Standing, certified: Certified, slurm: Slurm) -> None:
    certified("gpu-0", "gpu-1")
    slurm.nodes["gpu-1"]["reason"] = "bad DIMM, ticket 4711"
    admit(cluster, {})
    assert slurm.open == {"gpu-0"}
    assert slurm.nodes["gpu-1"]["reason"] == "bad DIMM, ticket 4711"


@pytest.mark.parametrize(("closed_s", "opened"), [(-1, True), (1, False), (600, False)])
def test_what_the_scheduler_closed_after_the_examination_began_is_not_opened_by_it(
    cluster: Standing, certified: Certified, slurm: Slurm, closed_s: int, opened: bool
) -> None:
    """The fabric's tests take minutes between a node's examination and its certificate."""
    issued = datetime.now(UTC).replace(microsecond=0)
    began = issued - timedelta(minutes=15)
    certified("gpu-0", "gpu-1", now=issued)
    slurm.nodes["gpu-0"] |= {
        "reason": "Prolog error",
        "reason_set_by_user": "slurm",
        "reason_changed_at": int((began + timedelta(seconds=closed_s)).timestamp()),
    }
    admit(cluster, {}, {name: sample_runs.examination(name, started=began) for name in ("gpu-0", "gpu-1")})
    assert ("gpu-0" in slurm.open) is opened
    assert "gpu-1" in slurm.open


@pytest.mark.parametrize(
    ("state", "severity", "bad"),
    [
        (State.FAIL, Severity.CRITICAL, True),
        (State.FAIL, Severity.MAJOR, True),
        (State.FAIL, Severity.WARNING, False),
        (State.ERROR, Severity.CRITICAL, False),
        (State.UNREACHABLE, Severity.CRITICAL, False),
        (State.NOT_EVALUATED, Severity.CRITICAL, False),
        (State.WAIVED, Severity.CRITICAL, False),
    ],
)
def test_only_a_proven_fault_takes_an_older_certificate_away(
    cluster: Standing, certified: Certified, state: State, severity: Severity, bad: bool
) -> None:
    certified("gpu-0")
    verdict = sample_runs.verdict("gpu.count", state=state, severity=severity)
    assert bool(fault("gpu-0", [verdict], None)) is bad
    keep(cluster, "gpu-0", Award(refused=("x",)), None, fault("gpu-0", [verdict], None))
    assert cluster.certificate("gpu-0").exists() is not bad


@pytest.mark.parametrize(
    ("kind", "bad"), [(FaultKind.NODE, True), (FaultKind.RAIL, True), (FaultKind.INCONCLUSIVE, False)]
)
def test_a_traced_fabric_fault_takes_it_away_and_an_untraced_one_does_not(kind: FaultKind, bad: bool) -> None:
    finding = Finding(kind=kind, subject="x", nodes=("gpu-0",), evidence="y")
    result = sample_runs.fabric(findings=(finding,), state=State.FAIL)
    assert bool(fault("gpu-0", [], result)) is bad
    assert not fault("gpu-1", [], result)


def test_a_signing_key_that_nobody_could_trust_is_refused(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_SIGNING_KEY", "file:/nowhere/key.pem")
    with pytest.raises(Problem) as refused:
        cluster.signer()
    assert refused.value.exit is Exit.USAGE
