"""What a node's incidents say of it, and what of a user's diagnosis may go into a history that root keeps."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from validation.diagnose.allocation import Allocation
from validation.diagnose.finding import Cause, Diagnosis, Read
from validation.diagnose.history import (
    History,
    Incident,
    NodeHistory,
    NothingToRecord,
    Refused,
    Verdict,
    before,
    history,
    incident,
    load_limits,
)
from validation.diagnose.kinds import Confidence
from validation.diagnose.rule import load_rules

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RULES = {rule.id: rule for rule in load_rules()}
JOB = Allocation("4711", "ada", ("gpu-0", "gpu-1.cluster"), NOW - timedelta(hours=3), NOW - timedelta(minutes=1))


def told(**changed: object) -> Diagnosis:
    cause = {"kind": "gpu.off_bus", "summary": "off the bus", "confidence": "certain", "rule": "xid.off_bus",
             "node": "gpu-0", "gpu": "0000:1b:00.0"} | changed  # fmt: skip
    return Diagnosis(root_cause=Cause.model_validate(cause), read=Read(files=1, bytes=1, lines=1))


def one(node: str, job: int, days: float = 1, rule: str = "xid.off_bus", **changed: object) -> Incident:
    return Incident.model_validate(
        {"node": node, "job": str(job), "user": f"user{job}", "at": NOW - timedelta(days=days), "rule": rule,
         "kind": RULES[rule].kind, "confidence": Confidence.CERTAIN, **changed}
    )  # fmt: skip


def of(incidents: list[Incident], *only: str) -> History:
    return history(incidents, NOW - timedelta(days=30), NOW, RULES, load_limits(), only)


def node(made: History, name: str) -> NodeHistory:
    return next(each for each in made.nodes if each.node == name)


def test_an_incident_says_whose_job_on_which_node_and_when_by_slurm() -> None:
    kept = incident(told(), JOB, NOW, RULES)
    assert (kept.node, kept.job, kept.user, kept.kind) == ("gpu-0", "4711", "ada", "gpu.off_bus")
    assert (kept.start, kept.at, kept.gpu) == (JOB.start, JOB.end, "0000:1b:00.0")


@pytest.mark.parametrize("name", ["gpu-1", "gpu-1.cluster"])
def test_a_log_may_call_a_node_by_its_short_name(name: str) -> None:
    assert incident(told(node=name), JOB, NOW, RULES).node == "gpu-1.cluster"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"node": "gpu-7"}, "none of the job's"),
        ({"node": "gpu-1.other"}, "none of the job's"),
        ({"node": "../gpu-0"}, "none of the job's"),
        ({"rule": "xid.invented"}, "none that is known"),
        ({"rule": None}, "none that is known"),
        ({"kind": "memory.host"}, "none that is known"),
    ],
    ids=str,
)
def test_what_is_not_of_the_job_or_of_our_rules_is_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(Refused, match=says) as wrong:
        incident(told(**changed), JOB, NOW, RULES)
    assert " · " in str(wrong.value)


@pytest.mark.parametrize(
    "changed", [{"confidence": "unknown", "kind": "unknown", "rule": None}, {"node": None}], ids=str
)
def test_a_diagnosis_without_a_cause_or_node_leaves_nothing(changed: dict[str, object]) -> None:
    with pytest.raises(NothingToRecord):
        incident(told(**changed), JOB, NOW, RULES)


@pytest.mark.parametrize("rule", ["slurm.time_limit", "slurm.cancelled", "slurm.preempted", "slurm.requeued"])
def test_what_the_scheduler_or_a_person_decided_is_no_nodes_doing(rule: str) -> None:
    """Slurm names the job's first node then: *** JOB 4 ON gpu-0 CANCELLED AT ..."""
    with pytest.raises(NothingToRecord, match="says nothing of a node"):
        incident(told(rule=rule, kind=RULES[rule].kind), JOB, NOW, RULES)


def test_a_job_of_one_node_needs_no_name_of_it() -> None:
    assert incident(told(node=None), Allocation("1", "ada", ("gpu-3",)), NOW, RULES).node == "gpu-3"


def test_a_record_is_always_one_that_can_be_read_again() -> None:
    odd = Allocation("1", "dom+ada lovelace;x" * 9, ("gpu-0",))
    kept = incident(told(rank=10**3000), odd, NOW, RULES)
    assert kept.rank is None
    assert len(kept.model_dump_json()) < 1024
    assert Incident.model_validate_json(kept.model_dump_json()) == kept


def test_no_text_of_the_user_is_kept() -> None:
    evil = "\x1b[2J<script>"
    kept = incident(told(summary=evil, gpu=evil, peer=evil, rail=evil), JOB, NOW, RULES)
    assert "script" not in kept.model_dump_json()


@pytest.mark.parametrize(
    "changed",
    [{"node": "../x"}, {"node": ".x"}, {"job": "1;2"}, {"user": "a b"}, {"version": "muster/incident/v2"}],
    ids=str,
)
def test_a_record_that_is_none_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Incident.model_validate(one("gpu-0", 1).model_dump() | changed)


def test_the_node_that_failed_last_is_first_and_the_worst_kind_leads() -> None:
    made = of([one("a", 1, 9), one("b", 2, 2), one("a", 3, 5, "kernel.oom_host"), one("a", 4, 6, "kernel.oom_host")])
    assert [each.node for each in made.nodes] == ["b", "a"]
    assert [each.kind for each in node(made, "a").kinds] == ["memory.host", "gpu.off_bus"]
    assert node(made, "a").jobs == 3


def test_two_of_a_kind_repeat_and_the_node_is_to_be_drained() -> None:
    made = node(of([one("a", 1), one("a", 2, 3), one("b", 3)]), "a")
    assert made.kinds[0].verdict is Verdict.REPEATS
    assert (made.kinds[0].other_nodes, made.kinds[0].other_most) == (1, 1)
    assert any("State=DRAIN" in each and "muster certify a" in each for each in made.advice)


def test_once_is_no_pattern_and_neither_is_a_guess_or_the_same_run_again() -> None:
    start = NOW - timedelta(days=2)
    for incidents in (
        [one("a", 1)],
        [one("a", 1), one("a", 2, confidence="possible")],
        [one("a", 1, start=start), one("a", 1, start=start)],
    ):
        made = node(of(incidents), "a")
        assert made.kinds[0].verdict is Verdict.ONCE
        assert not any("DRAIN" in each for each in made.advice)


def test_a_requeued_job_that_dies_again_counts_again() -> None:
    runs = [one("a", 1, start=NOW - timedelta(days=n)) for n in (2, 3)]
    assert node(of(runs), "a").kinds[0].sure == 2


def test_what_all_nodes_have_is_not_the_nodes_own() -> None:
    everywhere = [one(name, n, rule="kernel.link_down") for n, name in enumerate("aabbcc")]
    made = of(everywhere)
    assert {each.kinds[0].verdict for each in made.nodes} == {Verdict.SHARED}
    assert not any("DRAIN" in said for each in made.nodes for said in each.advice)
    worse = of([*everywhere, *(one("a", n, rule="kernel.link_down") for n in range(10, 13))])
    assert node(worse, "a").kinds[0].verdict is Verdict.REPEATS


def test_what_is_no_nodes_fault_drains_no_node() -> None:
    made = node(of([one("a", n, rule="storage.full") for n in range(4)]), "a")
    assert made.kinds[0].verdict is Verdict.REPEATS
    assert made.advice
    assert not any("DRAIN" in each for each in made.advice)


def test_jobs_of_one_user_alone_are_said_to_be() -> None:
    made = node(of([one("a", n, user="eve") for n in range(3)]), "a")
    assert any("one user" in each for each in made.advice)


def test_an_exchanged_gpu_is_seen() -> None:
    gpu = {"gpu": "0000:1b:00.0"}
    made = node(of([one("a", 1, 9, gpu_uuid="GPU-aaa", **gpu), one("a", 2, 5, **gpu),
                    one("a", 3, 2, gpu_uuid="GPU-bbb", **gpu)]), "a")  # fmt: skip
    assert made.exchanged == ("GPU 0000:1b:00.0: GPU-aaa on 21 Nov 2026, GPU-bbb on 28 Nov 2026",)
    assert any("exchanged" in each for each in made.advice)


def test_what_is_older_or_of_the_future_does_not_count_and_nodes_without_records_are_named() -> None:
    made = of([one("a", 1, 31), one("b", 2, -1), one("c", 3)], "a", "b", "c", "d")
    assert [each.node for each in made.nodes] == ["c"]
    assert made.nothing_of == ("a", "b", "d")


@pytest.mark.parametrize(
    ("incidents", "says"),
    [
        ([], "a: no other job is known to have died on it in 30 days"),
        ([one("a", 1, 4, "kernel.oom_host")], "a: second time in 30 days, never of this kind before, last on 26 Nov"),
        (
            [one("a", 1, 4), one("a", 2, 3), one("b", 3)],
            "a: third time in 30 days, twice of this kind before, last on 27 Nov",
        ),
        ([one("a", n) for n in range(12)], "a: 13th time in 30 days, 12 times of this kind before, last on 29 Nov"),
        ([one("a", 99, 0), one("a", 1, 40)], "a: no other job is known to have died on it in 30 days"),
    ],
)
def test_before_says_how_often_and_never_counts_the_job_itself(incidents: list[Incident], says: str) -> None:
    assert before("a", "gpu.off_bus", incidents, NOW, 30, job="99").words == says
