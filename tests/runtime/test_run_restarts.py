"""A job that is started again and again: it waits longer each time, and not for ever, unless it gets on."""

import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jobs import Jobs

from runtime.exits import Exit
from tests.runtime.test_run import TINY, events, finish, made, resumed_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "job")


def patient(wait_s: float, *more: str) -> tuple[str, ...]:
    return ("run.yaml", "--set", f"restarts.wait_s={wait_s}", *more)


def failing(jobs: Jobs, folder: Path, fault: str, wait_s: float = 0.3) -> tuple[int, list[float], str]:
    """Starts two ranks that fail: their code, what they waited before, and the first rank's log."""
    codes, logs = jobs.run(TINY, *patient(wait_s), folder=folder, world=2, TINY_FAULT=fault)
    assert len(set(codes)) == 1, codes
    waits = [[each["seconds"] for each in told(log, "restart.waits")] for log in logs]
    assert waits[0] == waits[1]
    return codes[0], waits[0], logs[0]


def told(log: str, name: str) -> list[dict[str, Any]]:
    return [each for each in events(log) if each["event"] == name]


@pytest.mark.parametrize(
    ("fault", "why"),
    [("update:2:all", "3 starts at step 0 failed"), ("restore:start", "3 starts failed before they had")],
)
def test_starts_without_progress_wait_longer_and_then_fail_for_good(
    jobs: Jobs, folder: Path, fault: str, why: str
) -> None:
    for waits in ([], [0.3], [0.6]):
        assert failing(jobs, folder, fault)[:2] == (Exit.RESUMABLE_FAILURE, waits)
    code, waits, log = failing(jobs, folder, fault)
    assert (code, waits) == (Exit.FAILED, [])
    assert why in log
    assert "did step=" not in log


def test_progress_begins_the_count_anew(jobs: Jobs, folder: Path) -> None:
    for fault, at, waits in (
        ("update:2:all", 0, []),
        ("update:6:all", 0, [0.3]),  # saves step 4
        ("update:6:all", 4, []),
        ("update:6:all", 4, [0.3]),
        ("update:10:all", 4, [0.6]),  # saves step 8
    ):
        code, waited, _ = failing(jobs, folder, fault)
        assert (code, waited, resumed_at(folder)) == (Exit.RESUMABLE_FAILURE, waits, at)
    assert finish(jobs, folder, 2).startswith("end steps=20 ")
    assert resumed_at(folder) == 8


def test_stops_are_not_counted_even_where_nothing_could_be_saved(jobs: Jobs, folder: Path) -> None:
    """The grace is too short for a save: each start begins where the one before did."""
    slow = ("--set", "stops.save_s=100")
    for _ in range(4):
        job = jobs.start(TINY, *patient(600, *slow), folder=folder, world=2, TINY_PAUSE_S="0.2")
        job.until("did step=2 ")
        for rank in range(2):
            job.kill(rank, signal.SIGTERM)
        assert job.codes() == [Exit.RESUMABLE_STOP] * 2
        assert resumed_at(folder) == 0
        assert not told(job.log(), "restart.waits")
    assert finish(jobs, folder, 2).startswith("end steps=20 ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_stop_of_one_rank_ends_the_wait_of_all(jobs: Jobs, folder: Path, number: signal.Signals) -> None:
    failing(jobs, folder, "update:2:all")
    job = jobs.start(TINY, *patient(3600, "--set", "restarts.longest_wait_s=3600"), folder=folder, world=2)
    job.until("restart.waits")
    time.sleep(1)
    assert "run.began" not in job.log()
    job.kill(1, number)
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2


def test_a_deadline_that_is_far_does_not_cut_the_wait(jobs: Jobs, folder: Path) -> None:
    failing(jobs, folder, "update:2:all")
    later = str(int(time.time()) + 86_400)
    codes, logs = jobs.run(TINY, *patient(2), folder=folder, world=2, MUSTER_DEADLINE=later)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    for log in logs:
        (waits,), (began,) = told(log, "restart.waits"), told(log, "run.began")
        waited = datetime.fromisoformat(began["time"]) - datetime.fromisoformat(waits["time"])
        assert waited.total_seconds() >= 1.9
