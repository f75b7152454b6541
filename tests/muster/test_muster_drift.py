"""What drift is measured from: what is signed first, and what was kept beside it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sample_runs

from muster.certify import Observed, keep
from muster.drift import baselines, drift
from muster.drift import certified as certified_of
from muster.standing import Standing
from policies.certificate import verify
from policies.drift import Baseline, Layer, LayerState
from policies.evidence import Award
from policies.identity import identify
from policies.issue import issue
from policies.judge import judge_cluster
from policies.measurement import Measurement, Outcome

SERVICE = "control-0"


def kept(cluster: Standing, name: str, like: str = "") -> None:
    baseline = Baseline(identity=identify(sample_runs.examination(like or name)), verdicts=())
    cluster.baseline(name).write_text(baseline.model_dump_json())


def observed(cluster: Standing, **like: str) -> Observed:
    """Every node as it was certified, but those that are now like another."""
    now = datetime.now(UTC)
    told = {}
    for node in cluster.plan.nodes:
        identity = sample_runs.examination(like.get(node.name.replace("-", "_"), node.name)).identity
        told[node.name] = sample_runs.examination(node.name, identity=identity, started=now, finished=now)
    judged = judge_cluster(cluster.catalogue, cluster.plan, cluster.pins, told.values(), cluster.waivers, now)
    return Observed(now, told, judged)


@pytest.mark.parametrize("content", [None, "", "{", "{}"])
def test_an_exchanged_service_node_is_found_without_its_baseline(
    cluster: Standing, certified_service: None, content: str | None
) -> None:
    if content is not None:
        cluster.baseline(SERVICE).write_text(content)
    assert baselines(cluster) == {}
    found = drift(cluster, observed(cluster, control_0="gpu-9"), None, None)
    assert SERVICE in found.voided
    assert found.voided[SERVICE][0].startswith("identity: is not the hardware that was certified")
    same = drift(cluster, observed(cluster), None, None)
    assert not any(each.subject == "identity" for each in same.items)
    assert any(each.subject == "baseline" and each.node == SERVICE for each in same.items)
    assert same.layers[Layer.EXAMINATION] is not LayerState.IN_SYNC


@pytest.fixture
def certified_service(cluster: Standing, certified: Callable[..., None]) -> None:
    certified(SERVICE)


def test_a_certificate_that_does_not_verify_tells_no_identity(
    cluster: Standing, certified: Callable[..., None]
) -> None:
    certified("gpu-0")
    certified(SERVICE, now=datetime.now(UTC) - cluster.plan.spec.certificate.lifetime - timedelta(minutes=1))
    kept(cluster, SERVICE)
    held = certified_of(cluster)
    assert held == {"gpu-0": identify(sample_runs.examination("gpu-0")).digest, SERVICE: None}
    found = drift(cluster, observed(cluster, control_0="gpu-9"), None, None)
    assert found.voided[SERVICE][0].startswith("identity: "), "the baseline still tells it"


def test_a_rule_that_is_another_than_when_certified_is_seen(cluster: Standing) -> None:
    def rules(told: str) -> Observed:
        seen = observed(cluster)
        measured = Measurement(measure="firewall.rules_digest", outcome=Outcome.MEASURED, value=told)
        examined = seen.examinations[SERVICE].model_copy(update={"measurements": (measured,)})
        return replace(seen, examinations={**seen.examinations, SERVICE: examined})

    signer = cluster.signer()
    asked = sample_runs.candidate(SERVICE, cluster.plan, examination=rules("a").examinations[SERVICE])
    now = datetime.now(UTC)
    envelope = issue(asked, signer, now)
    given = Award(envelope=envelope.decode(), certificate=verify(envelope, [signer.public_key], now))
    keep(cluster, SERVICE, given, rules("a"), "")
    for told, drifted in (("a", False), ("b", True)):
        subjects = {each.subject for each in drift(cluster, rules(told), None, None).items if each.node == SERVICE}
        assert ("firewall.rules_digest" in subjects) is drifted
