"""A node that was refused stays refused until it is certified again, whatever is copied where its certificate was."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sample_runs
from paper_pool import Slurm

from muster.admission import admit, credentials
from muster.certify import Observed, decide, keep, withdraw
from muster.commands.gate import last_refusals
from muster.standing import Standing
from policies import evidence
from policies.certificate import verify
from policies.evidence import Award
from policies.exits import Exit
from policies.issue import issue
from policies.judge import judge_cluster
from policies.measurement import Examination
from policies.refusal import Refusal
from pool.decision import Standing as Right

Certified = Callable[..., None]
Muster = Callable[..., tuple[Exit, str, str]]
WHY = "gpu.count: 7, expected 8"
BOTH = ("gpu-0", "gpu-1")
EARLIER = timedelta(minutes=5)


def award(cluster: Standing, name: str, now: datetime) -> Award:
    signer = cluster.signer()
    told = sample_runs.examination(name, started=now, finished=now)
    fabric = sample_runs.fabric(cluster.plan, started=now, finished=now)
    envelope = issue(sample_runs.candidate(name, cluster.plan, examination=told, fabric=fabric), signer, now)
    return Award(envelope=envelope.decode(), certificate=verify(envelope, [signer.public_key], now))


def observed(cluster: Standing, *told: Examination) -> Observed:
    now = datetime.now(UTC)
    judged = judge_cluster(cluster.catalogue, cluster.plan, cluster.pins, told, cluster.waivers, now)
    return Observed(now, {each.node: each for each in told}, judged)


@pytest.fixture
def copied_back(cluster: Standing, certified: Certified) -> None:
    """Both nodes hold a certificate; that of gpu-1 was taken away for a fault and put back from a copy."""
    certified(*BOTH, now=datetime.now(UTC) - EARLIER)
    copy = cluster.certificate("gpu-1").read_bytes()
    withdraw(cluster, "gpu-1", WHY)
    assert not cluster.certificate("gpu-1").exists()
    cluster.certificate("gpu-1").write_bytes(copy)


def kept_run(cluster: Standing, **changed: object) -> evidence.Run:
    run = sample_runs.run(cluster.plan).model_copy(update=changed)
    evidence.save(run, cluster.reports, datetime.now(UTC))
    return run


@pytest.mark.usefixtures("copied_back", "answers")
def test_a_withdrawn_certificate_that_was_copied_back_counts_nowhere(
    cluster: Standing, slurm: Slurm, muster: Muster
) -> None:
    slurm.open_all()
    now = datetime.now(UTC)
    kept_run(cluster, fabric=sample_runs.fabric(cluster.plan, started=now - EARLIER, finished=now - EARLIER))
    code, out, _ = muster("gate", "--class", "lab", "--json")
    assert code is Exit.FAIL
    (reason,) = json.loads(out)["reasons"]
    assert reason["subject"] == "gpu-1"
    assert WHY in reason["message"]
    assert "was refused at" in reason["message"]
    code, out, _ = muster("verify", "--node", "gpu-1", "--json")
    assert code is Exit.INVALID
    assert json.loads(out)[0]["kind"] == "Withdrawn"
    rows = {row["node"]: row for row in json.loads(muster("status", "--json")[1])}
    assert rows["gpu-0"]["holds"]
    assert not rows["gpu-1"]["holds"]
    found = credentials(cluster, {})
    assert found["gpu-0"].standing is Right.VALID
    assert found["gpu-1"].standing is Right.REVOKED
    admit(cluster, {})
    assert slurm.open == {"gpu-0"}


@pytest.mark.usefixtures("copied_back")
def test_a_later_certificate_supersedes_a_refusal_and_no_older_one_comes_back(cluster: Standing) -> None:
    older = cluster.certificate("gpu-1").read_bytes()
    later = datetime.now(UTC) + timedelta(seconds=1)
    cluster.certificate("gpu-1").write_text(award(cluster, "gpu-1", later).envelope or "")
    assert verify(cluster.envelopes()["gpu-1"], cluster.trusted(), later, refused=cluster.refusals()["gpu-1"])
    cluster.certificate("gpu-1").write_bytes(older)
    assert credentials(cluster, {})["gpu-1"].standing is Right.REVOKED


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.usefixtures("copied_back")
def test_a_record_of_a_clock_that_was_ahead_or_that_is_broken_ends_with_the_next_certificate(
    cluster: Standing, broken: bool
) -> None:
    now = datetime.now(UTC)
    record = Refusal(node="gpu-1", at=now + timedelta(days=1), why=WHY)
    cluster.refusal("gpu-1").write_text("{" if broken else record.model_dump_json())
    assert credentials(cluster, {})["gpu-1"].standing is Right.REVOKED
    told = sample_runs.examination("gpu-1", started=now, finished=now)
    seen = observed(cluster, told)
    keep(cluster, "gpu-1", award(cluster, "gpu-1", now), seen, "")
    assert credentials(cluster, {})["gpu-1"].standing is Right.VALID


def test_the_gate_says_no_where_the_newest_runs_own_gate_did(
    cluster: Standing, certified: Certified, answers: object, muster: Muster, slurm: Slurm
) -> None:
    """Also for a node that merely could not be told, and so kept its certificate."""
    slurm.open_all()
    certified(*BOTH, now=datetime.now(UTC) - EARLIER)
    now = datetime.now(UTC)
    fabric = sample_runs.fabric(cluster.plan, started=now - EARLIER, finished=now)
    run = kept_run(cluster, fabric=fabric, finished=now)
    assert muster("gate", "--class", "lab")[0] is Exit.PASS
    awards = run.awards | {"gpu-1": Award(refused=("clock.offset: error: timed out",))}
    kept_run(cluster, fabric=fabric, finished=now, awards=awards)
    code, out, _ = muster("gate", "--class", "lab")
    assert code is Exit.FAIL
    assert "clock.offset: error: timed out" in out
    kept_run(cluster, fabric=fabric, finished=now - 2 * EARLIER, awards=awards)
    assert muster("gate", "--class", "lab")[0] is Exit.PASS, "a certificate that is newer than the run"


def test_of_two_refusals_the_later_one_is_told() -> None:
    run = sample_runs.run()
    awards = run.awards | {"gpu-1": Award(refused=("of the run",))}
    run = run.model_copy(update={"awards": awards})
    for days, why in ((1, "of the record"), (-1, "of the run")):
        kept = {"gpu-1": Refusal(node="gpu-1", at=run.finished + timedelta(days=days), why="of the record")}
        assert last_refusals(kept, run)["gpu-1"].why == why
    assert last_refusals({}, None) == {}


@pytest.mark.usefixtures("copied_back")
def test_a_runs_own_gate_counts_no_withdrawn_certificate(cluster: Standing) -> None:
    now = datetime.now(UTC)
    seen = observed(cluster, *(sample_runs.examination(name, started=now, finished=now) for name in BOTH))
    decision = decide(cluster, seen, sample_runs.fabric(cluster.plan, started=now, finished=now), {})
    assert [each.subject for each in decision.reasons] == ["gpu-1"]
    assert WHY in decision.reasons[0].message


def test_a_refusal_is_written_before_the_certificate_is_taken(
    cluster: Standing, certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified("gpu-1")
    unlink = Path.unlink

    def stopped(self: Path, **options: bool) -> None:
        if self == cluster.certificate("gpu-1"):
            raise KeyboardInterrupt
        unlink(self, **options)

    monkeypatch.setattr(Path, "unlink", stopped)
    with pytest.raises(KeyboardInterrupt):
        withdraw(cluster, "gpu-1", WHY)
    assert credentials(cluster, {})["gpu-1"].standing is Right.REVOKED
