"""`muster up`, killed wherever it may be and started again, ends as one that nobody disturbed."""

import contextlib
import os
import random
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from standing_lab import MUSTER, ROOT, Lab

from stacks import lifecycle

STAGES = (
    "network: made",
    "gpu-0: made",
    "Every node",
    "The parallel filesystem and its clients",
    "The scheduler and its nodes",
    "examining",
    "fabric: collectives",
)
"""What it says where it is killed, in the order in which it comes there: each run gets farther than the one before."""


def killed_at(stage: str, argv: list[str], folder: Path) -> str:
    """Runs a command and kills it with all that it started as soon as it says the words; what it said until then.

    A run that finds the stage done already never says them, and ends by itself.
    """
    with subprocess.Popen(
        argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stderr
        limit = threading.Timer(1200, os.killpg, (run.pid, signal.SIGKILL))
        limit.start()
        said = ""
        for line in run.stderr:
            said += line
            if stage in line:
                os.killpg(run.pid, signal.SIGKILL)
                break
        limit.cancel()
    return said


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_run_that_is_killed_at_any_stage_is_taken_up_again(tmp_path: Path) -> None:
    with lab_to_be(tmp_path) as (lab, argv):
        for stage in STAGES:
            assert stage in killed_at(stage, [str(MUSTER), *argv], tmp_path)
        lab.muster(*argv)
        assert_undisturbed(lab)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_run_that_is_killed_at_random_instants_is_taken_up_again(tmp_path: Path) -> None:
    chance = random.SystemRandom()
    with lab_to_be(tmp_path) as (lab, argv):
        for _ in range(8):
            run = subprocess.Popen(
                [str(MUSTER), *argv], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(chance.uniform(0, 60))
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        lab.muster(*argv)
        assert_undisturbed(lab)


@contextlib.contextmanager
def lab_to_be(folder: Path) -> Iterator[tuple[Lab, list[str]]]:
    """A lab that does not stand yet, and what stands it up; taken down in the end."""
    lab = Lab(f"t{secrets.token_hex(3)}", folder)
    try:
        yield lab, ["up", lab.stack, "--spec", str(ROOT / "clusters" / "lab-containers.yaml")]
    finally:
        lab.muster("down", lab.stack, code=None)


def assert_undisturbed(lab: Lab) -> None:
    assert all(row["holds"] for row in lab.told("verify"))
    assert lab.pool() == {"gpu-0": "idle", "gpu-1": "idle"}
    assert lifecycle.preview(lab.stack, None, lambda *_: None).none
    assert lab.told("converge")["changed_tasks"] == 0
    assert not running_of(lab.stack), "a killed run left processes"


def running_of(stack: str) -> list[str]:
    """Command lines of Ansible's processes that work on the stack."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "ansible-playbook" in line and f"/{stack}/" in line:
                found.append(line)
    return found
