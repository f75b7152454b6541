"""A machine that is killed is seen, put back, and not used again before it is certified again; then all is removed."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from standing_lab import Lab

from policies.exits import Exit
from spec.folders import state
from stacks import lifecycle
from stacks.lab.model import namespace


def quiet(*_: object) -> None:
    """Nobody reads along."""


def test_a_killed_machine_is_put_back_and_must_be_certified_again(lab: Lab) -> None:
    boot = lab.deployment.state / "machines" / "gpu-1" / "boot.json"
    os.kill(json.loads(boot.read_text())["pid"], signal.SIGKILL)
    assert lifecycle.refresh(lab.stack, quiet).counts.get("delete") == 1
    lifecycle.up(lab.stack, None, quiet)
    assert lab.pool()["gpu-1"] not in ("idle", "idle*"), "Slurm would use a machine that nobody examined"
    assert lab.pool()["gpu-0"] == "idle"
    refused = lab.told("gate", "--class", "lab", code=Exit.FAIL)
    assert [reason["subject"] for reason in refused["reasons"]] == ["gpu-1"]
    assert "would get no job: by scheduler" in refused["reasons"][0]["message"]
    assert lab.certify() == set()
    assert set(lab.pool().values()) == {"idle"}


def test_nothing_is_left_of_a_lab_that_was_taken_down(lab: Lab) -> None:
    if os.environ.get("MUSTER_TEST_STACK"):
        pytest.skip("a stack that stood before the tests is left standing")
    lab.muster("down", lab.stack)
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert namespace(lab.stack) not in spaces
    assert not state(lab.stack).exists()
    assert f"/{lab.stack}/" not in Path("/proc/mounts").read_text()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert f"/{lab.stack}/" not in process.read_text(errors="replace")
    lab.muster("verify", "--stack", lab.stack, code=Exit.ERROR)
