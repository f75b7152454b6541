"""What `muster gate` asks of certificates, nodes, scheduler and fabric before it says go."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sample_runs
from paper_pool import Slurm

from muster.standing import Standing
from policies import evidence
from policies.exits import Exit
from policies.measurement import Examination

Muster = Callable[..., tuple[Exit, str, str]]
Answers = dict[str, Examination]


def test_the_gate_wants_every_compute_node_and_the_fabric(
    muster: Muster, certified: Callable[..., None], answers: Answers, slurm: Slurm
) -> None:
    certified("gpu-0", "gpu-1")
    slurm.open_all()
    code, out, _ = muster("gate", "--class", "lab", "--json")
    told = json.loads(out)
    assert code is Exit.INCOMPLETE, "no fabric result is there"
    assert [reason["subject"] for reason in told["reasons"]] == ["fabric"]
    assert not told["go"]


@pytest.fixture
def good(cluster: Standing, certified: Callable[..., None], answers: Answers, slurm: Slurm) -> Answers:
    """A cluster for which the gate says go; what its nodes answer."""
    certified("gpu-0", "gpu-1")
    slurm.open_all()
    save_run(cluster)
    return answers


def save_run(cluster: Standing, **fabric: Any) -> None:
    """Keeps a run of now, whose fabric's tests are of now too unless said otherwise."""
    now = datetime.now(UTC)
    told = sample_runs.fabric(cluster.plan, **({"started": now, "finished": now} | fabric))
    evidence.save(sample_runs.run(cluster.plan).model_copy(update={"fabric": told}), cluster.reports, now)


def test_the_gate_says_go_where_every_node_is_still_what_was_certified(muster: Muster, good: Answers) -> None:
    code, out, _ = muster("gate", "--class", "lab", "--json")
    assert code is Exit.PASS
    assert json.loads(out)["go"]
    assert json.loads(out)["identified"]


@pytest.mark.parametrize(
    ("changed", "code", "says"),
    [
        ({"identity": sample_runs.identity("gpu-7")}, Exit.INVALID, "other hardware"),
        ({"identity": {}}, Exit.ERROR, "told no identity"),
        ({"identity": sample_runs.identity("gpu-1") | {"gpus": None}}, Exit.ERROR, "could not read its gpus"),
        ({"complete": False, "unreachable": "connection timed out"}, Exit.ERROR, "connection timed out"),
        ({"complete": False, "fault": "the suite ended with 137"}, Exit.ERROR, "ended with 137"),
        ({"complete": False}, Exit.ERROR, "broke off"),
    ],
)
def test_the_gate_stays_shut_where_a_node_is_another_or_does_not_answer(
    muster: Muster, good: Answers, changed: dict[str, Any], code: Exit, says: str
) -> None:
    good["gpu-1"] = sample_runs.examination("gpu-1", **changed)
    ended, out, _ = muster("gate", "--class", "lab", "--json")
    told = json.loads(out)
    assert ended is code
    assert not told["go"]
    (reason,) = told["reasons"]
    assert reason["subject"] == "gpu-1"
    assert says in reason["message"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"state": "down", "reason": "Node unexpectedly rebooted", "reason_set_by_user": "slurm"},
            "by scheduler, Node un",
        ),
        ({"state_flags": ["DRAIN"], "reason": "fan replaced at noon"}, "by administrator, fan replaced"),
        ({"state_flags": ["DRAIN"]}, "by administrator, without a reason"),
        ({"state_flags": ["NOT_RESPONDING"]}, "it is idle"),
        ({"name": "gpu-7"}, "does not know it"),
    ],
)
def test_a_node_that_the_scheduler_would_not_use_shuts_the_gate_whatever_it_holds(
    muster: Muster, good: Answers, slurm: Slurm, changed: dict[str, Any], says: str
) -> None:
    slurm.nodes["gpu-1"] |= changed
    code, out, _ = muster("gate", "--class", "lab", "--json")
    assert code is Exit.FAIL
    (reason,) = json.loads(out)["reasons"]
    assert reason["subject"] == "gpu-1"
    assert says in reason["message"]
    assert muster("gate", "--class", "lab", "--offline")[0] is Exit.PASS


def test_a_certificate_copied_to_other_hardware_under_the_same_name_passes_offline_only_and_that_is_said(
    muster: Muster, good: Answers
) -> None:
    good["gpu-1"] = sample_runs.examination("gpu-1", identity=sample_runs.identity("gpu-7"))
    assert muster("gate", "--class", "lab")[0] is Exit.INVALID
    code, out, _ = muster("gate", "--class", "lab", "--offline")
    assert code is Exit.PASS
    assert "their hardware not looked at" in out
    assert not json.loads(muster("gate", "--class", "lab", "--offline", "--json")[1])["identified"]


def test_the_fabric_result_of_an_earlier_run_does_not_open_the_gate_for_later_certificates(
    muster: Muster, cluster: Standing, good: Answers
) -> None:
    before = datetime.now(UTC) - timedelta(days=2)
    save_run(cluster, started=before, finished=before)
    code, out, _ = muster("gate", "--class", "lab")
    assert code is Exit.INVALID
    assert "that run's result is missing" in out


def test_offline_no_node_is_asked(muster: Muster, good: Answers) -> None:
    good.clear()
    assert muster("gate", "--class", "lab", "--offline")[0] is Exit.PASS
