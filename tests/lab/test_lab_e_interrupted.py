"""`muster up`, killed wherever it may be and started again, ends as one that nobody disturbed."""

import os
import secrets
import signal
import subprocess
import threading
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
    lab = Lab(f"t{secrets.token_hex(3)}", tmp_path)
    argv = ["up", lab.stack, "--spec", str(ROOT / "clusters" / "lab-containers.yaml")]
    try:
        for stage in STAGES:
            assert stage in killed_at(stage, [str(MUSTER), *argv], tmp_path)
        lab.muster(*argv)
        assert all(row["holds"] for row in lab.told("verify"))
        assert lab.pool() == {"gpu-0": "idle", "gpu-1": "idle"}
        assert lifecycle.preview(lab.stack, None, lambda *_: None).none
        assert lab.told("converge")["changed_tasks"] == 0
    finally:
        lab.muster("down", lab.stack, code=None)
