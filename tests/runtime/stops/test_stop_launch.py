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
def launched(folder: Path, worker: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The launcher with two workers, once both have started."""
    program = folder / "worker.py"
    program.write_text(textwrap.dedent(WORKER) + textwrap.dedent(worker))
    with subprocess.Popen(
        [sys.executable, "-m", "runtime.stops.launch", "--nproc-per-node", "2", *options, program, folder],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while process.poll() is None and len(list(folder.glob("started.*.0"))) < 2:
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


@pytest.mark.parametrize(
    ("codes", "stopped", "code"),
    [
        ([], False, 0),
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
