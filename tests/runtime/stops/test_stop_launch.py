"""The job's exit code through torchrun's agent, with real agents and workers."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.exits import Exit
from runtime.stops.launch import verdict

ROOT = Path(__file__).parents[3]

WORKER = """
    import os, signal, sys, time
    from pathlib import Path
    from runtime.exits import Exit
    from runtime.stops.account import account
    from runtime.stops.leave import leave
    from runtime.stops.signals import watch

    signals = watch()
    here = Path(sys.argv[1])
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    (here / f"started.{rank}.{attempt}").touch()

    agent = os.getppid()

    def until(condition):
        while not condition():
            if os.getppid() != agent:
                os._exit(70)  # the test gave up
            time.sleep(0.01)

    def asked(*numbers):
        until(lambda: any(signals.came(number) for number in numbers))
"""


@contextmanager
def launched(
    folder: Path, worker: str, *options: str, workers: int = 2, **env: str
) -> Iterator["subprocess.Popen[str]"]:
    """The launcher with two workers, once so many have started."""
    program = folder / "worker.py"
    program.write_text(textwrap.dedent(WORKER) + textwrap.dedent(worker))
    with subprocess.Popen(
        [sys.executable, "-m", "runtime.stops.launch", "--nproc-per-node", "2", *options, program, folder],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while process.poll() is None and len(list(folder.glob("started.*.0"))) < workers:
                time.sleep(0.02)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_what_does_not_help_is_not_started_again(tmp_path: Path) -> None:
    worker = """
        if rank == 1:
            leave(Exit.FAILED)
        asked(signal.SIGTERM)  # by the agent, for want of the other
        leave(Exit.RESUMABLE_FAILURE)
    """
    with launched(tmp_path, worker, "--max-restarts", "3") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.FAILED, said
    assert not list(tmp_path.glob("started.*.1"))


def test_what_may_pass_is_started_again_and_the_last_attempt_decides(tmp_path: Path) -> None:
    worker = """
        if attempt == 0:
            leave(Exit.RESUMABLE_FAILURE)
        leave(Exit.RESUMABLE_STOP)
    """
    with launched(tmp_path, worker, "--max-restarts", "3") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_STOP, said
    assert len(list(tmp_path.glob("started.*.1"))) == 2
    assert not list(tmp_path.glob("started.*.2"))


def test_a_signal_to_the_agent_stops_the_job_with_its_code_however_often_it_comes(tmp_path: Path) -> None:
    worker = """
        asked(signal.SIGTERM)
        (here / f"asked.{rank}").touch()
        until((here / "again").exists)
        leave(Exit.RESUMABLE_STOP)
    """
    with launched(tmp_path, worker) as process:
        process.terminate()
        while process.poll() is None and len(list(tmp_path.glob("asked.*"))) < 2:
            time.sleep(0.02)
        process.terminate()
        process.terminate()
        (tmp_path / "again").touch()
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_STOP, said


def test_a_user_signal_to_the_agent_reaches_the_workers_and_sets_no_limit(tmp_path: Path) -> None:
    worker = """
        asked(signal.SIGUSR1)
        time.sleep(1.5)  # longer than the agent's own limit
        # Who leaves first has the agent end the other, which is no limit of the signal's.
        ended = signals.came(signal.SIGTERM)
        assert ended is None or ended - signals.came(signal.SIGUSR1) > 1.2
        leave(Exit.RESUMABLE_STOP)
    """
    with launched(tmp_path, worker, "--shutdown-timeout", "1") as process:
        process.send_signal(signal.SIGUSR1)
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_STOP, said


def test_a_worker_that_is_ended_for_want_of_another_has_the_grace_that_was_given(tmp_path: Path) -> None:
    worker = """
        if rank == 1:
            leave(Exit.RESUMABLE_FAILURE)
        asked(signal.SIGTERM)
        (here / "asked").touch()
        time.sleep(20)
        (here / "late").touch()
        leave(Exit.RESUMABLE_FAILURE)
    """
    with launched(tmp_path, worker, "--shutdown-timeout", "2") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_FAILURE, said
    assert (tmp_path / "asked").exists()
    assert not (tmp_path / "late").exists()


@contextmanager
def meeting() -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A meeting place, and the options with which agents find it."""
    with subprocess.Popen(
        [sys.executable, "-m", "runtime.stops.meet", "127.0.0.1:0"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            endpoint = process.stdout.readline().rpartition(" ")[2].strip()
            conf = "is_host=0,last_call_timeout=1,join_timeout=60,keep_alive_interval=5,keep_alive_max_attempt=6"
            found = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf", conf]
            yield process, [*found, "--local-addr", "127.0.0.1"]
        finally:
            process.kill()


def test_a_change_of_members_is_no_failure_and_leaves_nothing_of_it_behind(tmp_path: Path) -> None:
    """The workers that stopped for it had ended with 85, which is not how those after them end."""
    worker = """
        if os.environ["WORLD_SIZE"] == "4":
            failed = here / f"failed.{rank}"
            if failed.exists():
                leave(Exit.DONE)
            failed.touch()
            until(lambda: len(list(failed.parent.glob("failed.*"))) == 4)
            leave(Exit.RESUMABLE_FAILURE)
        asked(signal.SIGTERM)
        account(1, ["SIGTERM"])
        leave(Exit.RESUMABLE_STOP)
    """
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with meeting() as (_, options):
        options += ["--nnodes", "1:2", "--max-restarts", "1"]
        worker = worker.replace("here /", "here.parent /")
        with launched(tmp_path / "one", worker, *options) as one, launched(tmp_path / "two", worker, *options) as two:
            said = [each.communicate(timeout=100)[1] for each in (one, two)]
    assert (one.returncode, two.returncode) == (Exit.DONE, Exit.DONE), said


def test_a_stop_that_is_the_jobs_ends_it_also_where_members_may_change(tmp_path: Path) -> None:
    worker = """
        until(lambda: len(list(here.glob(f"started.*.{attempt}"))) == 2)
        account(1, ["SIGTERM", "deadline"] if rank else ["deadline"])
        leave(Exit.RESUMABLE_STOP)
    """
    with launched(tmp_path, worker, "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
                  "--rdzv-conf", "last_call_timeout=1", "--max-restarts", "3") as process:  # fmt: skip
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_STOP, said
    assert not list(tmp_path.glob("started.*.1"))


def test_a_signal_that_comes_while_members_change_is_kept(tmp_path: Path) -> None:
    worker = """
        asked(signal.SIGTERM)
        (here / f"asked.{rank}").touch()
        until((here / "go").exists)
        account(1, ["SIGTERM"])
        leave(Exit.RESUMABLE_STOP)
    """
    (tmp_path / "other").mkdir()
    with meeting() as (_, options):
        options += ["--nnodes", "1:2"]
        with (
            launched(tmp_path, worker, *options) as one,
            launched(tmp_path / "other", worker, *options, workers=0) as two,
        ):
            while one.poll() is None and len(list(tmp_path.glob("asked.*"))) < 2:
                time.sleep(0.02)
            one.terminate()
            (tmp_path / "go").touch()
            _, said = one.communicate(timeout=60)
            assert one.returncode == Exit.RESUMABLE_STOP, said
            assert (tmp_path / "asked.0").exists()
            assert len(list(tmp_path.glob("started.*"))) == 2
            two.terminate()
            two.communicate(timeout=60)


def test_agents_that_do_not_meet_end_with_the_code_that_has_the_job_started_again(tmp_path: Path) -> None:
    with meeting() as (place, options):
        conf = options.index("--rdzv-conf") + 1
        few = [*options, "--nnodes", "2:3"]
        few[conf] = few[conf].replace("join_timeout=60", "join_timeout=2")
        with launched(tmp_path, "leave(Exit.DONE)", *few, workers=0) as alone:
            _, said = alone.communicate(timeout=60)
        assert alone.returncode == Exit.RESUMABLE_FAILURE, said
        assert "the agents did not meet: RendezvousTimeoutError" in said
        assert "2 to 3 nodes · look whether its host lives" in said

        (tmp_path / "lost").mkdir()
        worker = "asked(signal.SIGTERM); leave(Exit.RESUMABLE_STOP)"
        with launched(tmp_path / "lost", worker, *options, "--nnodes", "1:3", "--rdzv-id", "other") as process:
            place.kill()
            _, said = process.communicate(timeout=100)
    assert process.returncode == Exit.RESUMABLE_FAILURE, said
    assert "the agents did not meet: RendezvousConnectionError" in said


def test_a_stop_while_agents_still_wait_for_others_is_one(tmp_path: Path) -> None:
    with (
        meeting() as (_, options),
        launched(tmp_path, "", *options, "--nnodes", "2:3", workers=0, LOGLEVEL="INFO") as process,
    ):
        assert process.stderr
        while "starting workers for entrypoint" not in (line := process.stderr.readline()):
            assert line, process.wait()
        time.sleep(2)  # logging catches what is raised within it, also this
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESUMABLE_STOP, said


def test_a_meeting_place_that_cannot_be_kept_says_so() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = [sys.executable, "-m", "runtime.stops.meet", f"127.0.0.1:{taken.getsockname()[1]}"]
        found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == Exit.RESUMABLE_FAILURE
    assert "no store can be kept here" in found.stderr
    wrong = subprocess.run([*argv[:3], "nowhere"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "the endpoint is HOST:PORT" in wrong.stderr


@pytest.mark.parametrize(
    ("codes", "stopped", "code"),
    [
        ([], False, 0),
        ([], True, 85),
        ([0, 0], True, 0),
        ([85, 85], True, 85),
        ([0, 85], False, 85),
        ([86, 85], False, 86),
        ([86, 87, 85], False, 87),
        ([86, 1], False, 1),
        ([1, 87], False, 87),
        ([-9, 86], False, 86),
        ([-9, 85], True, 86),
        ([-15, -15], True, 85),
        ([-15, 85], True, 85),
        ([-15, 86], False, 86),
    ],
)
def test_the_worst_of_the_processes_codes_is_the_jobs(codes: list[int], stopped: bool, code: int) -> None:
    assert verdict(codes, stopped) == code
