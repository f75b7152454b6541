"""The root cause is who failed first, and a guess is never called certain."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.diagnose.finding import Diagnosis, Found, Line, Read
from validation.diagnose.kinds import Confidence, Retry
from validation.diagnose.reason import diagnose
from validation.diagnose.rule import Rule

NOW = datetime(2026, 11, 30, 16, 0, tzinfo=UTC)
READ = Read(files=1, bytes=1, lines=1)


def rule(id: str, kind: str, role: str = "root", **more: Any) -> Rule:
    text = f"the words of {id}"
    return Rule.model_validate(
        {
            "id": id, "title": f"What {id} means to people", "symptom": "hang", "role": role, "kind": kind,
            "patterns": [text], "sources": ["test:none"], "cases": [{"text": text}],
            "check": ["look at the node itself"], "fix": ["mend what is broken"], "retry": "after_fix",
        } | more
    )  # fmt: skip


RULES = (
    rule("gpu.gone", "gpu.off_bus", confidence="certain", retry="other_node",
         explains=["peer.lost", "collective.timeout"]),
    rule("link.down", "network.link_down", confidence="likely", explains=["peer.lost", "collective.timeout"]),
    rule("link.counted", "network.link_down", role="confirmation"),
    rule("path.lost", "network.rdma_path", confidence="likely", explains=["peer.lost"], confirmed_by=["link.counted"]),
    rule("program.died", "program.error", confidence="possible", explains=["peer.lost", "network.rdma_path"]),
    rule("not.started", "launch.environment", confidence="likely"),
    rule("slurm.task_failed", "program.error", role="cascade"),
    rule("disk.full", "storage.full", confidence="certain", explains=["checkpoint.save_failed"]),
    rule("save.failed", "checkpoint.save_failed", confidence="possible"),
    rule("peer.closed", "peer.lost", role="cascade"),
    rule("timed.out", "collective.timeout", role="cascade"),
    rule("being.ended", "stop.signal", role="teardown"),
    rule("a.step", "progress.step", role="progress"),
)  # fmt: skip


def found(
    id: str, at_s: float | None = None, rank: int | None = None, node: str | None = None, number: int = 7, **takes: str
) -> Found:
    time = None if at_s is None else NOW + timedelta(seconds=at_s)
    return Found(id, Line("job.log", number, f"the words of {id}", time, rank, node), takes, 1, time)


def asked(*founds: Found) -> Diagnosis:
    return diagnose(founds, RULES, READ)


def test_the_cause_is_what_explains_the_rest_whatever_is_told_first() -> None:
    told = asked(
        found("peer.closed", 0, 1), found("timed.out", 1, 2), found("gpu.gone", 3, node="gpu-7", gpu="0000:1b:00")
    )
    cause = told.root_cause
    assert (cause.kind, cause.node, cause.gpu) == ("gpu.off_bus", "gpu-7", "0000:1b:00.0")
    assert cause.confidence is Confidence.CERTAIN
    assert [each.kind for each in told.consequences] == ["peer.lost", "collective.timeout"]
    assert told.retry is Retry.OTHER_NODE
    assert "gpu-7" in told.retry_why


def test_a_rank_that_ends_leaves_its_peers_packets_unanswered_and_cleaning_up_does_not() -> None:
    path = found("path.lost", rank=0, number=20)
    assert asked(path, found("program.died", rank=2, number=10)).root_cause.kind == "program.error"
    assert asked(path, found("program.died", rank=0, number=30)).root_cause.kind == "network.rdma_path"


def test_what_could_not_start_was_on_the_node_whose_task_ended_if_only_one_did() -> None:
    start = found("not.started")
    line = found("slurm.task_failed").line
    one = [Found("slurm.task_failed", line, {"node": node}, 1, None) for node in ("gpu-4", "gpu-9")]
    assert asked(start, one[0]).root_cause.node == "gpu-4"
    assert asked(start, *one).root_cause.node is None


def test_consequences_alone_are_no_cause() -> None:
    told = asked(found("peer.closed", 0, 1), found("timed.out", 1, 2), found("being.ended", 2))
    assert (told.root_cause.kind, told.root_cause.confidence) == ("unknown", Confidence.UNKNOWN)
    assert len(told.consequences) == 2


def test_nothing_is_unknown() -> None:
    assert asked().root_cause.confidence is Confidence.UNKNOWN
    assert asked(found("a.step", step="7")).last_step == 7


def test_a_confirmation_makes_one_surer() -> None:
    assert asked(found("path.lost")).root_cause.confidence is Confidence.LIKELY
    assert asked(found("path.lost"), found("link.counted")).root_cause.confidence is Confidence.CERTAIN


def test_two_causes_that_do_not_explain_each_other_are_never_certain() -> None:
    told = asked(found("gpu.gone", 0), found("disk.full", 1))
    assert told.root_cause.confidence is Confidence.POSSIBLE
    assert [each.kind for each in told.others] == ["storage.full"]


def test_what_came_clearly_later_explains_nothing() -> None:
    told = asked(found("save.failed", 0), found("disk.full", 600))
    assert {told.root_cause.kind, *(each.kind for each in told.others)} == {"storage.full", "checkpoint.save_failed"}
    assert told.root_cause.confidence is not Confidence.CERTAIN


@given(st.lists(st.builds(
    found, st.sampled_from([each.id for each in RULES]), st.none() | st.floats(-1e6, 1e6),
    st.none() | st.integers(0, 9),
    step=st.text(max_size=5), rank_=st.just("")), max_size=12))  # fmt: skip
def test_no_findings_raise_and_the_order_of_reading_does_not_matter(founds: list[Found]) -> None:
    told = diagnose(founds, RULES, READ)
    again = diagnose(list(reversed(founds)), RULES, READ)
    assert (told.root_cause.kind, told.root_cause.confidence) == (again.root_cause.kind, again.root_cause.confidence)
    causes = {each.id for each in RULES if each.role in ("root", "confirmation")}
    if not causes & {each.rule for each in founds}:
        assert told.root_cause.confidence is Confidence.UNKNOWN


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "x" * 5000])
def test_evidence_may_be_printed(text: str) -> None:
    line = Line("job.log", 1, text, None, None, None)
    (evidence,) = diagnose([Found("disk.full", line, {}, 1, None)], RULES, READ).root_cause.evidence
    assert evidence.text.isprintable()
    assert len(evidence.text) <= 400


def test_the_one_node_that_says_the_same_is_whose_it_is() -> None:
    cause = asked(found("gpu.gone", 0, 3), found("gpu.gone", 1, node="gpu-7")).root_cause
    assert (cause.rank, cause.node, len(cause.evidence)) == (3, "gpu-7", 2)
    assert asked(found("path.lost", 0, 3), found("link.counted", 1, node="gpu-7")).root_cause.node == "gpu-7"
    assert asked(found("gpu.gone", 0, 3), found("gpu.gone", 1, 4, node="gpu-7")).root_cause.rank == 3
    several = asked(found("gpu.gone", 0, 3), found("gpu.gone", 1, node="gpu-7"), found("gpu.gone", 2, node="gpu-8"))
    assert several.root_cause.node is None
