"""A step that does not end is told with the stacks of every rank, and the process ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from runtime.control import PeerLostError
from runtime.exits import Exit
from runtime.failures.classify import Failure
from runtime.failures.emergency import Rescue, after, rescue
from runtime.failures.kinds import Kind
from runtime.failures.watchdog import Watchdog, WatchdogConfig
from runtime.place import Place

HERE = Path(__file__).parent
PLACE = Place(rank=3, world=4, attempt="1")


def stuck(folder: Path, *what: str) -> list["subprocess.CompletedProcess[str]"]:
    """Both ranks of a job in which each is stuck in what is said."""
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "stuck.py", str(rank), each, folder],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[2]),
                "TORCH_FR_BUFFER_SIZE": "100",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, each in enumerate(what)
    ]
    found = []
    for rank in ranks:
        try:
            out, _ = rank.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            rank.kill()
            out, _ = rank.communicate()
        found.append(subprocess.CompletedProcess(rank.args, rank.returncode, out))
    return found


def test_every_rank_of_a_stuck_job_writes_its_stacks_and_ends_resumable(tmp_path: Path) -> None:
    ranks = stuck(tmp_path, "collective", "data")
    assert [each.returncode for each in ranks] == [Exit.RESUMABLE_FAILURE] * 2, ranks
    stacks = [(tmp_path / "stacks" / f"7-rank-{rank}.stacks.txt").read_text() for rank in (0, 1)]
    assert "all_reduce" in stacks[0]
    assert "slow_data" in stacks[1]
    assert "after step 11" in stacks[0]
    assert b"gloo:all_reduce" in (tmp_path / "stacks" / "7-rank-0.stacks.gloo.json").read_bytes()
    assert all("step.stuck" in each.stdout for each in ranks)


def test_native_code_that_keeps_the_interpreter_is_met_too(tmp_path: Path) -> None:
    ranks = stuck(tmp_path, "collective", "interpreter")
    assert ranks[0].returncode == Exit.RESUMABLE_FAILURE
    assert ranks[1].returncode == 1  # faulthandler's own
    assert "Timeout (" in ranks[1].stdout
    assert " in main\n" in ranks[1].stdout


class Ended(threading.Event):
    """Notes the code in place of ending the process."""

    code: Exit | None = None

    def __call__(self, exit: Exit) -> None:
        self.code = exit
        self.set()


def test_a_rank_that_beats_is_left_alone_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = Ended()
    watchdog = Watchdog(WatchdogConfig(limit_s=0.5, first_s=60), PLACE, tmp_path, end=ended).start()
    for step in range(20):
        watchdog.beat(step)
        time.sleep(0.05)
    with watchdog.patient(60):
        assert not ended.wait(1.0)
    watchdog.close()
    assert not list(tmp_path.iterdir())


def test_a_step_that_outlasts_the_grace_is_ended_before_the_kill(tmp_path: Path) -> None:
    ended, events = Ended(), []
    Watchdog(
        WatchdogConfig(limit_s=600, settle_s=0),
        PLACE,
        tmp_path,
        lambda event, /, **fields: events.append((event, fields)),
        killed=lambda: time.monotonic() + 1.0,
        end=ended,
    ).start()
    assert ended.wait(20)
    assert ended.code is Exit.RESUMABLE_FAILURE
    assert "grace" in events[-1][1]["reason"]


def test_a_folder_that_cannot_be_written_does_not_keep_a_stuck_job_alive(tmp_path: Path) -> None:
    ended, events = Ended(), []
    watchdog = Watchdog(
        WatchdogConfig(first_s=0.3, settle_s=0),
        PLACE,
        tmp_path / "stacks",
        lambda event, /, **fields: events.append((event, fields)),
        end=ended,
    ).start()
    watchdog.stacks.mkdir(parents=True)
    assert ended.wait(20)
    assert [event for event, _ in events] == ["step.stacks_not_written", "step.stuck"]
    assert "test_failure_watchdog.py" in events[0][1]["found"]


def test_a_folder_that_hangs_does_not_keep_a_stuck_job_alive(tmp_path: Path) -> None:
    """A pipe that nobody reads is what storage that answers nothing is to whoever opens it."""
    ended, events = Ended(), []
    watchdog = Watchdog(
        WatchdogConfig(limit_s=600, settle_s=600),
        PLACE,
        tmp_path,
        lambda event, /, **_: events.append(event),
        killed=lambda: until,
        end=ended,
    )
    os.mkfifo(watchdog.stacks)
    until = time.monotonic() + 3.0
    watchdog.start()
    assert ended.wait(60)
    assert ended.code is Exit.RESUMABLE_FAILURE
    assert events == ["step.stacks_not_written", "step.stuck"]


LOST = Failure(Kind.PEER_LOST, "lost", "test")


def test_an_emergency_save_ends_in_time_whatever_it_does() -> None:
    release = threading.Event()

    def full() -> None:
        raise OSError(28, "No space left on device")

    assert rescue(lambda: None, LOST, 10) is Rescue.SAVED
    assert rescue(full, LOST, 10) is Rescue.FAILED
    assert rescue(lambda: release.wait(60), LOST, 0.1) is Rescue.TOO_SLOW
    release.set()


@pytest.mark.parametrize("kind", [Kind.CUDA, Kind.STORAGE, Kind.OUT_OF_MEMORY_HOST, Kind.DESYNC])
def test_what_cannot_be_saved_from_is_not_pretended_to_be(kind: Kind) -> None:
    called: list[int] = []
    assert rescue(lambda: called.append(1), Failure(kind, "", ""), 10) is Rescue.NOT_TRIED
    assert rescue(lambda: called.append(1), LOST, 10, intact=False) is Rescue.NOT_TRIED
    assert not called


def test_after_a_failure_comes_its_code_the_save_and_what_was_told() -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    saved: list[int] = []
    error = PeerLostError("rank 2 did not come")
    exit = after(error, lambda: saved.append(1), tell=lambda event, /, **fields: events.append((event, fields)))
    assert exit is Exit.RESUMABLE_FAILURE
    assert saved == [1]
    assert [event for event, _ in events] == ["failed", "emergency.saved"]
    assert events[0][1]["exception"] is error
    assert after(KeyError("x"), lambda: saved.append(2)) is Exit.FAILED
    assert saved == [1, 2]


def test_a_rank_that_was_killed_is_told_by_its_code() -> None:
    from runtime.failures.classify import classify_exit

    assert classify_exit(-signal.SIGTERM).kind is Kind.STOPPED
    assert classify_exit(128 + signal.SIGKILL).kind is Kind.OUT_OF_MEMORY_HOST
