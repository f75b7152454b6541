"""What a node said at another time is not why this job ended, and neither is what the job survived."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from test_diagnose_reason import READ, rule

from validation.diagnose.finding import Diagnosis, Found, Line
from validation.diagnose.kinds import Confidence
from validation.diagnose.lines import NO_YEAR
from validation.diagnose.reason import diagnose
from validation.diagnose.times import AROUND, with_years

START = datetime(2026, 1, 2, 10, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)

RULES = (
    rule("gpu.gone", "gpu.off_bus", confidence="certain", explains=["gpu.launch_failure", "peer.lost"]),
    rule("launch.failed", "gpu.launch_failure", confidence="likely"),
    rule("link.slow", "slow.network", confidence="likely", symptom="slow"),
    rule("may.be", "slow.data", confidence="possible", symptom="slow"),
    rule("not.reached", "rendezvous.refused", confidence="likely", symptom="no_start"),
    rule("peer.closed", "peer.lost", role="cascade"),
    rule("a.step", "progress.step", role="progress"),
    rule("all.done", "stop.done", role="progress"),
)


def said(id: str, at: datetime | None, file: str = "job.log", line: int = 1, rank: int | None = None) -> Found:
    node = None if file == "job.log" else "gpu-1"
    return Found(id, Line(file, line, f"the words of {id}", at, rank, node), {}, 1, at, at)


def steps(hours: int = 2) -> Found:
    """From START on."""
    end = START + hours * HOUR
    return Found("a.step", Line("job.log", 99, "the words of a.step", end, 0, None), {}, 99, end, START)


def asked(*founds: Found) -> Diagnosis:
    return diagnose(founds, RULES, READ)


@pytest.mark.parametrize(
    "at", [START - 24 * HOUR, START - 2 * AROUND, START + 2 * HOUR + 2 * AROUND, START + 24 * HOUR]
)
def test_what_a_node_said_before_or_after_the_job_is_only_told_beside(at: datetime) -> None:
    told = asked(steps(), said("peer.closed", START + 2 * HOUR, rank=1), said("gpu.gone", at, "gpu-1-kern.log"))
    assert told.root_cause.kind == "unknown"
    assert [(each.kind, each.confidence) for each in told.others] == [("gpu.off_bus", Confidence.POSSIBLE)]
    assert "another time" in told.root_cause.summary


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_what_a_node_said_around_the_end_is_the_cause(minutes: int) -> None:
    at = START + 2 * HOUR + timedelta(minutes=minutes)
    told = asked(steps(), said("peer.closed", START + 2 * HOUR, rank=1), said("gpu.gone", at, "gpu-1-kern.log"))
    assert (told.root_cause.kind, told.root_cause.confidence) == ("gpu.off_bus", Confidence.CERTAIN)


def test_what_the_job_went_on_for_long_after_is_not_why_it_ended() -> None:
    assert asked(steps(), said("gpu.gone", START + HOUR, "gpu-1-kern.log")).root_cause.kind == "unknown"
    assert asked(steps(), said("link.slow", START + HOUR, "gpu-1-kern.log")).root_cause.kind == "slow.network"


def test_without_a_time_nothing_is_of_another_one() -> None:
    assert asked(steps(), said("gpu.gone", None, "gpu-1-kern.log")).root_cause.kind == "gpu.off_bus"
    assert asked(said("gpu.gone", START, "gpu-1-kern.log")).root_cause.kind == "gpu.off_bus"


def test_a_job_that_ended_well_has_no_cause_but_of_slowness_or_of_what_came_after() -> None:
    done = said("all.done", START + 2 * HOUR, line=100)
    assert asked(steps(), said("may.be", START, line=3), done).root_cause.kind == "unknown"
    assert asked(steps(), said("launch.failed", START, line=3), done).root_cause.kind == "unknown"
    assert asked(steps(), said("link.slow", START, line=3), done).root_cause.kind == "slow.network"
    assert asked(steps(), said("launch.failed", None, line=101), done).root_cause.kind == "gpu.launch_failure"
    other = said("launch.failed", START + 2 * HOUR, "rank-3.log", rank=3)  # that one rank is done says nothing of it
    assert asked(steps(), other, done).root_cause.kind == "gpu.launch_failure"


def test_a_start_that_was_tried_again_and_came_is_not_why_it_ended() -> None:
    refused = said("not.reached", START, line=7, rank=0)
    assert asked(refused, said("peer.closed", START + HOUR, line=200)).root_cause.kind == "rendezvous.refused"
    assert asked(refused, steps(), said("peer.closed", START + HOUR, line=200)).root_cause.kind == "unknown"
    assert asked(replace(refused, until=150), steps()).root_cause.kind == "rendezvous.refused"  # at the next start
    elsewhere = said("not.reached", START, "rank-1.log", 7, 1)
    assert asked(elsewhere, steps()).root_cause.kind == "unknown"
    late = said("not.reached", START + 2 * HOUR, "rank-1.log", 7, 1)
    assert asked(late, steps()).root_cause.kind == "rendezvous.refused"


def test_clocks_of_nodes_differ_but_one_nodes_does_not() -> None:
    gone = said("gpu.gone", START + timedelta(minutes=2), "gpu-1-kern.log")
    other = Found("launch.failed", Line("rank-3.log", 1, "", START, 3, "gpu-2"), {}, 1, START)
    same = Found("launch.failed", Line("rank-3.log", 1, "", START, 3, "gpu-1"), {}, 1, START)
    assert asked(gone, other).others == ()
    assert {each.kind for each in asked(gone, same).others} | {asked(gone, same).root_cause.kind} == {
        "gpu.off_bus",
        "gpu.launch_failure",
    }


def test_a_time_without_a_year_is_in_that_of_the_job() -> None:
    last_year = datetime(2031, 12, 31, 23, 59, 58, tzinfo=NO_YEAR)
    found = with_years([steps(), said("gpu.gone", last_year, "gpu-1-kern.log")])
    assert found[1].line.time == datetime(2025, 12, 31, 23, 59, 58, tzinfo=UTC)
    assert with_years([said("gpu.gone", last_year)])[0].line.time == last_year
    leap = datetime(2028, 2, 29, 12, tzinfo=NO_YEAR)
    assert with_years([steps(), said("gpu.gone", leap)])[1].line.time == leap  # no such day around 2026
