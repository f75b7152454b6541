"""One converge run at a time, and nothing of an earlier one beside it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.converge.alone import BusyError, alone, end_left, environment

STARTER = """
import subprocess, sys, time
kept = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
print(kept.pid, flush=True)
time.sleep(600 if "stay" in sys.argv else 0)
"""


def silent(text: str, keep: bool) -> None:
    pass


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(process: int) -> bool:
    for _ in range(100):
        if not lives(process):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_left(tmp_path)


def started(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """A process of a run in the folder, and the id of one that it started in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, *arguments],
        env=os.environ | environment(folder),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    return process, int(process.stdout.readline())


def test_what_a_killed_run_left_is_ended_before_the_next_begins(folder: Path) -> None:
    run, left = started(folder, "stay")
    run.kill()
    run.wait()
    assert lives(left)
    with alone(folder, silent, 5):
        assert gone(left)


def test_a_run_leaves_nothing_however_it_ends(folder: Path) -> None:
    def broken() -> int:
        with alone(folder, silent, 5):
            run, left = started(folder)
            run.wait()
            assert lives(left)
            raise RuntimeError(str(left))

    with pytest.raises(RuntimeError) as raised:
        broken()
    assert gone(int(str(raised.value)))


def test_another_clusters_run_is_left_alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A name that begins like this one's is another's, too.
    for other in (tmp_path_factory.mktemp("other"), folder.with_name(folder.name + "0")):
        other.mkdir(exist_ok=True)
        run, left = started(other)
        run.wait()
        with alone(folder, silent, 5):
            pass
        assert lives(left)
        end_left(other)
        assert gone(left)


def test_two_runs_on_one_cluster_do_not_meet(folder: Path) -> None:
    said: list[str] = []
    with alone(folder, silent, 5):
        run, left = started(folder)
        run.wait()
        with pytest.raises(BusyError, match="another run"), alone(folder, lambda text, _: said.append(text), 0.6):
            pass
        with pytest.raises(BusyError), alone(folder, silent, 60, stopped=lambda: True):
            pass
        assert lives(left), "the run that had to wait ended what the other is doing"
    assert said == ["another run converges this cluster: waiting for it"]
    with alone(folder, silent, 0):
        pass
