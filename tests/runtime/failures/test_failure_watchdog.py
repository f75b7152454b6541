"""A step that does not end is told with the stacks of every rank, and the process ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from runtime.control import PeerLostError
from runtime.exits import Exit
from runtime.failures import recorder
from runtime.failures.classify import Failure
from runtime.failures.emergency import Rescue, after, rescue
from runtime.failures.kinds import Kind
from runtime.failures.watchdog import Watchdog, WatchdogConfig
from runtime.place import Place

HERE = Path(__file__).parent
PLACE = Place(rank=3, world=4, attempt="1")


@pytest.fixture(autouse=True)
def _own_variables() -> Iterator[None]:
    """A watchdog says where torch writes its records, for the whole process."""
    with mock.patch.dict(os.environ):
        yield


def stuck(folder: Path, *what: str, **env: str) -> list["subprocess.CompletedProcess[str]"]:
    """Both ranks of a job in which each is stuck in what is said."""
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "stuck.py", str(rank), each, folder],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[2]),
                "OMP_NUM_THREADS": "1",
                **env,
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
    records = [tmp_path / "stacks" / f"7-rank-{rank}.gloo.json" for rank in (0, 1)]
    for each, record in zip(ranks, records, strict=True):
        (told,) = events(each, "step.stuck")
        assert told["records"] == [str(record)]
    # The record says who did not come: the first rank began a second collective, the other did not.
    found = [json.loads(record.read_text()) for record in records]
    assert [int(each["pg_status"]["0"]["last_enqueued_collective"]) for each in found] == [2, 1]
    last = max(found[0]["entries"], key=lambda entry: entry["collective_seq_id"])
    assert (last["profiling_name"], last["input_sizes"], last["retired"]) == ("gloo:all_reduce", [[4]], False)


def events(rank: "subprocess.CompletedProcess[str]", name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in rank.stdout.splitlines() if line.startswith("{")]
    return [each for each in found if each["event"] == name]


@pytest.mark.parametrize(("record", "why"), [("fails", "illegal memory access"), ("hangs", "did not come back")])
def test_a_record_that_torch_does_not_give_is_told_and_keeps_nobody_alive(
    tmp_path: Path, record: str, why: str
) -> None:
    ranks = stuck(tmp_path, "collective", "data", RECORD=record)
    assert [each.returncode for each in ranks] == [Exit.RESUMABLE_FAILURE] * 2, ranks
    for each in ranks:
        (told,) = events(each, "step.record_not_written")
        assert why in told["reasons"][0]
        assert events(each, "step.stuck")[0]["records"] == []
    assert "slow_data" in (tmp_path / "stacks" / "7-rank-1.stacks.txt").read_text()


def test_a_record_for_which_torch_keeps_the_interpreter_keeps_nobody_alive_either(tmp_path: Path) -> None:
    ranks = stuck(tmp_path, "data", "data", RECORD="holds")
    assert [each.returncode for each in ranks] == [1, 1]  # faulthandler's own
    assert "slow_data" in (tmp_path / "stacks" / "7-rank-1.stacks.txt").read_text()


def test_torch_is_told_to_keep_a_record_and_where_to_write_it_unless_someone_said_so(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    recorder.prepare(variables=variables)
    assert variables == {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    recorder.prepare(tmp_path, PLACE, variables)
    assert variables["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/1-torch-rank-"
    before = dict(variables)
    recorder.prepare(tmp_path / "other", PLACE, variables)
    assert variables == before
    own = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "7",
        "TORCH_FR_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine",
    }
    kept = dict(own)
    recorder.prepare(tmp_path, PLACE, kept)
    assert kept == own


def test_what_torch_writes_by_itself_lies_beside_the_stacks(tmp_path: Path) -> None:
    """As it does where it gives up on a collective: here it is asked to, in a process that has joined its group."""
    program = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from runtime.connect import connect
from runtime.failures.watchdog import Watchdog, WatchdogConfig

place = connect()
assert os.environ["TORCH_FR_BUFFER_SIZE"] == "2000"
dist.init_process_group("gloo", f"file://{sys.argv[1]}/store", world_size=1, rank=0)
watchdog = Watchdog(WatchdogConfig(), place, Path(sys.argv[1]) / "stacks").start()
dist.all_reduce(torch.ones(4))
torch._C._distributed_c10d._dump_fr_trace_file(0)
watchdog.close()
print(place.attempt)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    attempt = ran.stdout.strip()
    assert b"all_reduce" in (tmp_path / "stacks" / f"{attempt}-torch-rank-0").read_bytes()


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
