"""Storage that fails costs a save, never an earlier checkpoint, and never the job its time."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_samples import found, save

from runtime.checkpoint.storage import (
    MOST_STALLED,
    DeniedError,
    FailingError,
    FullError,
    ReadOnlyError,
    StaleError,
    StalledError,
    Started,
    Storage,
    StorageError,
)
from runtime.checkpoint.tier import Tier

SCENARIO = Path(__file__).with_name("fault_scenario.py")
ROOT = Path(__file__).parents[3]


def with_real(kind: str, at: Path) -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("mounts file systems: needs root")
    at.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(SCENARIO), kind, str(at)],
        env={"PYTHONPATH": f"{ROOT}:{SCENARIO.parent}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_full_disk_costs_one_save(tmp_path: Path) -> None:
    assert with_real("full", tmp_path / "disk") == {
        "save": "FullError",
        "earlier": "1",
        "next": 3,
        "steps": [1, 3],
        "left": [],
    }


def test_a_disk_that_turns_read_only_keeps_what_it_has(tmp_path: Path) -> None:
    assert with_real("read_only", tmp_path / "disk") == {
        "save": "ReadOnlyError",
        "earlier": "1",
        "next": 3,
        "steps": [1, 3],
    }


def test_a_mount_that_is_gone_is_not_replaced_by_a_folder_of_the_same_name(tmp_path: Path) -> None:
    assert with_real("gone", tmp_path / "disk") == {"save": "StaleError", "left": []}


def test_a_permission_that_is_lost_costs_the_saves_until_it_is_back(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="muster-denied-") as open_to_all:
        Path(open_to_all).chmod(0o755)
        assert with_real("denied", Path(open_to_all) / "disk") == {
            "save": "DeniedError",
            "earlier": "1",
            "next": 3,
            "steps": [1, 3],
        }


def test_a_disk_that_answers_nothing_stops_neither_training_nor_later_saves(tmp_path: Path) -> None:
    if not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("freezes an ext4 on a loop device: there is none here")
    told = with_real("stalled", tmp_path / "disk")
    assert told == {
        "save": ["StalledError", "StalledError"],
        "trained": True,
        "waited": True,
        "earlier": "1",
        "next": 3,
        "steps": [1, 3],
        "left": [],
    }


class Failing(Storage):
    """Fails the call of a number, and counts them; `ever` makes all later ones fail too."""

    def __init__(self, number: int, code: int, ever: bool) -> None:
        super().__init__(30)
        self.number, self.code, self.ever, self.count = number, code, ever, 0

    def start(self, what: str, path: Path, call: Callable[[], Any]) -> Started[Any]:
        count, self.count = self.count, self.count + (what != "hash")
        if what != "hash" and (count == self.number or (self.ever and count > self.number >= 0)):

            def fail() -> None:
                raise OSError(self.code, os.strerror(self.code))

            return super().start(what, path, fail)
        return super().start(what, path, call)


def tier_on(storage: Storage, folder: Path) -> Tier:
    tier = Tier(folder)
    tier._storage = tier._lease._storage = storage
    return tier


@pytest.mark.parametrize(
    ("code", "kind", "ever"),
    [(errno.EIO, FailingError, False), (errno.ENOSPC, FullError, True)],
    ids=["one_fails", "all_fail_from_then_on"],
)
def test_whichever_call_fails_the_earlier_checkpoint_stays_and_the_next_save_works(
    tmp_path: Path, code: int, kind: type[StorageError], ever: bool
) -> None:
    counting = Failing(-1, code, ever)
    with tier_on(counting, tmp_path / "count") as tier:
        save(tier, 1)
        first = counting.count
        save(tier, 2)
        calls = counting.count
    assert calls - first > 30
    for number in range(first, calls):
        folder = tmp_path / f"{number}"
        storage = Failing(number, code, ever)
        with tier_on(storage, folder) as tier:
            save(tier, 1)
            told = ""
            try:
                save(tier, 2)
            except kind as error:
                told = str(error)
            # Of a save that says it is done, only cleaning may have failed.
            assert (str(tmp_path) in told and told.count(" · ") == 2) if told else found(tier, 2) == 2
            storage.number, storage.ever = -1, False
            assert found(tier, 1) == 1
            assert all(found(tier, step) == step for step in tier.steps())
            assert set(tier.steps()) <= {1, 2}
            tier.sweep()
            save(tier, 3, turn=1)
            assert found(tier, 3) == 3
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("code", "kind", "passing"),
    [
        (errno.EIO, FailingError, True),
        (errno.ENOSPC, FullError, True),
        (errno.EDQUOT, FullError, True),
        (errno.EROFS, ReadOnlyError, False),
        (errno.EACCES, DeniedError, False),
        (errno.EPERM, DeniedError, False),
        (errno.ESTALE, StaleError, True),
        (errno.ENOENT, StaleError, True),
        (errno.ETIMEDOUT, FailingError, True),
        (errno.EREMOTEIO, FailingError, True),
    ],
)
def test_an_error_says_whether_it_may_pass(tmp_path: Path, code: int, kind: type[StorageError], passing: bool) -> None:
    storage = Failing(0, code, False)
    with pytest.raises(kind) as told:
        storage.names(tmp_path)
    assert told.value.passing is passing
    storage.close()


@pytest.mark.parametrize(
    ("call", "error", "kind"),
    [
        ("fsync", "EIO", "FailingError"),
        ("pwrite64", "EIO", "FailingError"),
        ("pwrite64", "EDQUOT", "FullError"),
    ],
)
def test_errors_of_real_system_calls_are_told_by_their_kind(tmp_path: Path, call: str, error: str, kind: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("injects errors into system calls with strace: apt-get install strace")
    program = (
        "import sys; from pathlib import Path\n"
        "from store_samples import save; from runtime.checkpoint.tier import Tier\n"
        "tier = Tier(Path(sys.argv[1]))\n"
        "try:\n    save(tier, 2)\nexcept Exception as wrong:\n    print(type(wrong).__name__)\n"
        "print(tier.steps())"
    )
    with Tier(tmp_path / "checkpoints") as tier:
        save(tier, 1)
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:error={error}",
            sys.executable,
            "-c",
            program,
            str(tmp_path / "checkpoints"),
        ],
        env={"PYTHONPATH": f"{ROOT}:{SCENARIO.parent}", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == f"{kind}\n(1,)\n"
    with Tier(tmp_path / "checkpoints") as tier:
        assert found(tier, 1) == 1


def test_calls_that_hang_are_left_behind_and_counted(tmp_path: Path) -> None:
    free = threading.Event()
    storage = Storage(stall_s=0.01)
    for _ in range(MOST_STALLED):
        with pytest.raises(StalledError, match="no answer for"):
            storage.do("wait", tmp_path, free.wait)
    with pytest.raises(StalledError, match="earlier calls hang"):
        storage.do("wait", tmp_path, free.wait)
    free.set()
    deadline = time.monotonic() + 30
    while storage._busy and time.monotonic() < deadline:
        time.sleep(0.01)
    assert storage.do("answer", tmp_path, lambda: 5) == 5
    storage.close()


def test_a_write_that_hangs_keeps_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed, its number could come to mean another file, into which the late write would then go."""
    free, fds = threading.Event(), []
    real = os.pwrite

    def slow(fd: int, data: bytes, at: int) -> int:
        fds.append(fd)
        free.wait(60)
        return real(fd, data, at)

    class Hasty(Storage):
        """Waits long, but for what hangs: a busy machine is no stalled disk."""

        def start(self, what: str, path: Path, call: Callable[[], Any]) -> Started[Any]:
            self.stall_s = 0.2 if path.suffix == ".data" and what == "write the file" and not free.is_set() else 60
            return super().start(what, path, call)

    monkeypatch.setattr(os, "pwrite", slow)
    tier = tier_on(Hasty(60), tmp_path)
    with pytest.raises(StalledError):
        save(tier, 1)
    assert os.fstat(fds[0]).st_size == 0
    free.set()
    monkeypatch.undo()
    save(tier, 2, turn=1)
    assert found(tier, 2) == 2
    assert tier.steps() == (2,)
    tier.close()
