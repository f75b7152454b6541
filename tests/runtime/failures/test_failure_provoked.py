"""Failures provoked for real, and what they are taken for."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cgroup import memory_cgroup
from jobs import Jobs

from runtime.exits import Exit
from runtime.failures.classify import classify_exit, classify_text
from runtime.failures.kinds import TREATMENTS, Kind

SCRIPT = Path(__file__).with_name("provoke.py")
Provoke = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def provoke(jobs: Jobs, tmp_path: Path) -> Provoke:
    def provoke(name: str, world: int = 1) -> list[dict[str, Any]]:
        codes, _ = jobs.run(SCRIPT, name, folder=tmp_path, world=world, GLOO_SOCKET_IFNAME="lo")
        found = []
        for rank, code in enumerate(codes):
            told = tmp_path / f"failure.{rank}"
            found.append({**(json.loads(told.read_text()) if told.exists() else {"kind": None}), "code": code})
        return found

    return provoke


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("refused_port", Kind.RENDEZVOUS),
        ("taken_port", Kind.RENDEZVOUS),
        ("wrong_host_name", Kind.RENDEZVOUS),
        ("mismatched_world_size", Kind.RENDEZVOUS),
        ("bad_sample_in_a_worker", Kind.DATA),
        ("data_source_lost_in_a_worker", Kind.DATA),
        ("worker_killed", Kind.OUT_OF_MEMORY_HOST),
        ("full_disk", Kind.STORAGE),
        ("truncated_checkpoint", Kind.CHECKPOINT),
        ("empty_checkpoint", Kind.CHECKPOINT),
        ("truncated_safetensors", Kind.CHECKPOINT),
        ("checkpoint_with_code", Kind.MISFIT),
        ("checkpoint_of_another_model", Kind.MISFIT),
        ("address_space_exhausted", Kind.OUT_OF_MEMORY_HOST),
        ("program_error", Kind.PROGRAM),
    ],
)
def test_a_failure_of_one_process_is_taken_for_what_it_is(provoke: Provoke, name: str, kind: Kind) -> None:
    (found,) = provoke(name)
    assert (found["kind"], found["code"]) == (kind, TREATMENTS[kind].exit), found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("peer_killed_in_a_collective", Kind.PEER_LOST),
        ("peer_that_does_not_come", Kind.PEER_LOST),
        ("desynchronised_sizes", Kind.DESYNC),
        ("desynchronised_operations", Kind.DESYNC),
    ],
)
def test_the_ranks_that_are_left_know_what_befell_the_job(provoke: Provoke, name: str, kind: Kind) -> None:
    found = provoke(name, 3)
    assert {(each["kind"], each["code"]) for each in found[:2]} == {(kind, TREATMENTS[kind].exit)}, found


def test_ranks_whose_store_went_with_the_first_rank_have_lost_a_peer(provoke: Provoke) -> None:
    found = provoke("store_that_goes", 2)
    assert found[0]["code"] == -signal.SIGKILL
    assert (found[1]["kind"], found[1]["code"]) == (Kind.PEER_LOST, Exit.RESUMABLE_FAILURE), found


def test_without_torchs_debugging_desynchronised_ranks_are_known_by_what_gloo_said_last(
    provoke: Provoke, tmp_path: Path
) -> None:
    # The rank that gets more than it asked for aborts in gloo's own thread; the other loses its connection.
    found = provoke("desynchronised_without_debugging", 2)
    assert found[0]["code"] == -signal.SIGABRT
    assert classify_text(next(tmp_path.glob("job-*-rank-0.log")).read_text()).kind is Kind.DESYNC
    assert found[1]["kind"] == Kind.PEER_LOST, found


def test_a_process_that_its_cgroup_kills_for_memory_is_out_of_host_memory(tmp_path: Path) -> None:
    with memory_cgroup(64 << 20) as group:
        ran = subprocess.run(
            [
                sys.executable,
                "-c",
                "import os, sys\n"
                "open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
                "kept = [b'x' * (1 << 20) for _ in range(1024)]",
                group,
            ],
            timeout=60,
            check=False,
        )
    failure = classify_exit(ran.returncode)
    assert failure.kind is Kind.OUT_OF_MEMORY_HOST
    assert failure.treatment.exit is Exit.RESUMABLE_FAILURE
