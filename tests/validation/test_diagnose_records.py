"""The history's folder: whole records or none, one of each run of a job, whatever else lies there."""

import errno
import multiprocessing
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from validation.diagnose import records as store
from validation.diagnose.history import Incident, Refused
from validation.diagnose.records import HistoryError, add, records

NOW = datetime.now(UTC)
SINCE = NOW - timedelta(days=30)


def one(node: str = "gpu-0", job: int = 1, **changed: object) -> Incident:
    return Incident.model_validate(
        {"node": node, "job": str(job), "user": "ada", "at": NOW, "kind": "gpu.off_bus", "rule": "xid.off_bus",
         "confidence": "certain", **changed}
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "history"
    made.mkdir(mode=0o755)
    return made


def test_what_is_added_is_read_and_only_the_nodes_that_are_asked_for(folder: Path) -> None:
    mine = [one(), one("gpu-1", 2), one("gpu-1", 3)]
    for each in mine:
        add(folder, each)
    found, wrong = records(folder, SINCE)
    assert sorted(found, key=lambda each: each.job) == mine
    assert not wrong
    assert [each.job for each in records(folder, SINCE, ("gpu-0",))[0]] == ["1"]
    assert not list(folder.rglob(".*")), "nothing is left beside the records"


def test_a_run_of_a_job_is_kept_once_and_the_next_run_of_it_too(folder: Path) -> None:
    add(folder, one(start=NOW - timedelta(hours=2)))
    for again in (one(start=NOW - timedelta(hours=2), kind="memory.host"), one()):
        with pytest.raises(Refused, match="recorded for gpu-0 already"):
            add(folder, again)
    add(folder, one(start=NOW - timedelta(hours=1)))
    assert [each.kind for each in records(folder, SINCE)[0]] == ["gpu.off_bus"] * 2


def _add(folder: Path, number: int, barrier: "multiprocessing.synchronize.Barrier") -> None:
    barrier.wait(30)
    for job in range(20):
        try:
            add(folder, one(job=job, rank=number))
        except Refused:
            continue


def test_writers_at_once_lose_nothing_and_only_one_wins_each(folder: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    barrier = spawn.Barrier(4)
    writers = [spawn.Process(target=_add, args=(folder, number, barrier)) for number in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
        assert each.exitcode == 0
    found, wrong = records(folder, SINCE)
    assert sorted(int(each.job) for each in found) == list(range(20))
    assert not wrong


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("5.json", one(job=5).model_dump_json()[:40].encode(), "torn"),
        ("5.json", b"", "torn"),
        ("5.json", b"\x00\xff" * 10 + b"\n", "JSON"),
        ("5.json", b"[" * 5000 + b"\n", "JSON"),
        ("5.json", b"x" * (store.LARGEST + 10), "larger than"),
        ("5.json", one("gpu-7", 5).model_dump_json().encode() + b"\n", "of gpu-7"),
        ("5.json", b'{"version":"muster/incident/v9"}\n', "version"),
    ],
)
def test_a_record_that_cannot_be_read_is_said_and_the_others_count(
    folder: Path, name: str, raw: bytes, says: str
) -> None:
    add(folder, one())
    (folder / "gpu-0" / name).write_bytes(raw)
    found, wrong = records(folder, SINCE)
    assert [each.job for each in found] == ["1"]
    assert len(wrong) == 1
    assert says in wrong[0]
    assert " · " in wrong[0]


def test_links_pipes_and_strange_names_are_followed_nowhere(folder: Path, tmp_path: Path) -> None:
    add(folder, one())
    secret = tmp_path / "secret"
    secret.write_text(one(job=9).model_dump_json() + "\n")
    (folder / "gpu-0" / "9.json").symlink_to(secret)
    os.mkfifo(folder / "gpu-0" / "8.json")
    (folder / "gpu-1").symlink_to(folder / "gpu-0")
    (folder / "strange name").mkdir()
    (folder / "file").touch()
    found, wrong = records(folder, SINCE)
    assert [each.job for each in found] == ["1"]
    assert len(wrong) == 2


def test_a_folder_that_is_not_there_or_is_a_file_is_an_error_with_advice(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for where in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(HistoryError, match=" · "):
            records(where, SINCE)
        with pytest.raises(HistoryError, match=" · "):
            add(where, one())


def test_an_empty_folder_has_no_incidents(folder: Path) -> None:
    assert records(folder, SINCE) == ([], [])


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_is_no_history(folder: Path, mode: int) -> None:
    add(folder, one())
    folder.chmod(mode)
    with pytest.raises(HistoryError, match="others may write"):
        add(folder, one(job=2))
    assert bool(records(folder, SINCE)[1]) is bool(mode & 0o002)


def test_who_fills_it_up_drives_out_only_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_KEPT", 5)
    add(folder, one(job=1, user="ada", at=NOW - timedelta(days=20)))
    for job in range(10, 30):
        add(folder, one(job=job, user="eve", at=NOW - timedelta(days=10) + timedelta(minutes=job)))
    found, _ = records(folder, SINCE)
    assert sorted(int(each.job) for each in found) == [1, 26, 27, 28, 29]


def test_many_broken_records_are_counted_and_not_all_told(folder: Path) -> None:
    (folder / "gpu-0").mkdir()
    for job in range(100):
        (folder / "gpu-0" / f"{job}.json").write_text("{")
    found, wrong = records(folder, SINCE)
    assert not found
    assert len(wrong) == store.MOST_TOLD + 1
    assert "80 more" in wrong[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_cannot_write_into_roots_history(folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each == Path("/tmp"):  # noqa: S108
            break
        each.chmod(0o755)
    add(folder, one())
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            records(folder, SINCE)
            add(folder, one(job=2))
        except HistoryError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert [each.job for each in records(folder, SINCE)[0]] == ["1"]


@pytest.mark.parametrize("what", ["folder", "record"])
def test_a_node_whose_records_cannot_be_looked_at_is_said_and_others_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for each in (one(), one("gpu-1", 2)):
        add(folder, each)
    plain = os.scandir

    class Stale:
        def __init__(self, entry: "os.DirEntry[str]") -> None:
            self.name, self.path = entry.name, entry.path

        def stat(self, **_: object) -> None:
            raise OSError(errno.ESTALE, "Stale file handle")

    def scandir(path: Path) -> object:
        if Path(path).name != "gpu-0":
            return plain(path)
        if what == "folder":
            raise OSError(errno.ESTALE, "Stale file handle")
        return [Stale(each) for each in plain(path)]

    monkeypatch.setattr(store.os, "scandir", scandir)
    found, wrong = records(folder, SINCE)
    assert [each.node for each in found] == ["gpu-1"]
    assert len(wrong) == 1
    assert "gpu-0" in wrong[0]
    assert "Stale file handle" in wrong[0]
