"""`muster history` and `muster history-add` at the edges: what is kept of whom, and what is said where nothing is."""

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.commands import history as command
from policies.exits import Exit
from validation.diagnose.finding import Diagnosis
from validation.diagnose.history import History

Muster = Callable[..., tuple[Exit, str, str]]
LOGS = Path(__file__).parents[2] / "examples" / "logs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm
    made = tmp_path / "history"
    made.mkdir(mode=0o755)
    monkeypatch.setenv("MUSTER_HISTORY", str(made))
    return made


@pytest.fixture
def keep(muster: Muster, folder: Path, tmp_path: Path) -> Callable[..., tuple[Exit, str, str]]:
    """Keeps the diagnosis of an example of a job, in which gpu-1 is named."""
    path = tmp_path / "diagnosis.json"
    path.write_text(muster("diagnose", str(LOGS / "hang"), "--json")[1])

    def call(job: str, nodes: str = "gpu-0,gpu-1", *more: str) -> tuple[Exit, str, str]:
        return muster("history-add", str(path), "--job", job, "--nodes", nodes, "--user", "ada", *more)

    return call


def test_what_is_kept_is_told_again_and_bears_on_the_next_diagnosis(muster: Muster, keep: Muster) -> None:
    for job in ("1", "2"):
        assert keep(job)[0] is Exit.PASS
    code, out, _ = muster("history")
    assert code is Exit.PASS
    assert "gpu-1" in out
    assert "repeats" in out
    told = Diagnosis.model_validate_json(muster("diagnose", str(LOGS / "hang"), "--json")[1])
    assert told.before is not None
    assert told.before.words.startswith("gpu-1: third time in 30 days, twice of this kind before")
    assert "gpu-1: third time" in muster("diagnose", str(LOGS / "hang"))[1]


def test_a_history_makes_nobody_surer(muster: Muster, keep: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in range(9):
        keep(str(job))
    with_it = json.loads(muster("diagnose", str(LOGS / "hang"), "--json")[1])
    monkeypatch.delenv("MUSTER_HISTORY")
    without = json.loads(muster("diagnose", str(LOGS / "hang"), "--json")[1])
    assert with_it.pop("before")["jobs"] == 9
    assert without.pop("before") is None
    assert with_it == without


def test_json_is_what_its_published_schema_says(muster: Muster, keep: Muster) -> None:
    keep("1")
    told = json.loads(muster("history", "--json")[1])
    assert History.model_validate(told).model_dump(mode="json") == told
    schema = json.loads(muster("schema", "history")[1])
    assert set(told) == set(schema["required"])


@pytest.mark.parametrize(
    ("job", "nodes", "says"),
    [
        ("1", "gpu-0,gpu-2", "none of the job's"),
        ("x", "gpu-1", "no Slurm job"),
        ("1", "gpu-1;reboot", "no list of nodes"),
        ("1", "", "Slurm"),
    ],
)
def test_what_is_not_of_the_job_is_not_kept(keep: Muster, folder: Path, job: str, nodes: str, says: str) -> None:
    code, out, err = keep(job, nodes)
    assert code is Exit.FAIL
    assert says in err
    assert out == ""
    assert not any(folder.iterdir())


def test_what_was_kept_is_told_to_machines(keep: Muster, folder: Path) -> None:
    told = json.loads(keep("1", "gpu-0,gpu-1", "--json")[1])
    assert told["kept"] == str(folder / "gpu-1" / "1.json")
    assert told["incident"] == json.loads((folder / "gpu-1" / "1.json").read_text())


def test_the_same_job_twice_is_refused_and_changes_nothing(keep: Muster, folder: Path) -> None:
    keep("1")
    kept = (folder / "gpu-1" / "1.json").read_bytes()
    code, _, err = keep("1")
    assert code is Exit.FAIL
    assert "already" in err
    assert (folder / "gpu-1" / "1.json").read_bytes() == kept


def test_what_is_made_up_makes_no_line_of_its_own_in_a_log(muster: Muster, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(json.dumps({"root_cause": {"x\nNov 30 root: all is well\x1b[2J": 1}, "read": {}}))
    _, _, err = muster("history-add", str(tmp_path / "d.json"), "--job", "1", "--nodes", "gpu-1")
    assert not any(line.startswith("Nov 30") for line in err.splitlines())
    assert "\x1b" not in err


@pytest.mark.parametrize("raw", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b"x" * (command.LARGEST + 1)], ids=len)
def test_a_hostile_diagnosis_is_refused(
    muster: Muster, folder: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    code, _, err = muster("history-add", "--job", "1", "--nodes", "gpu-1")
    assert code is Exit.FAIL
    assert "diagnosis" in err
    assert not any(folder.iterdir())


def test_a_job_without_a_known_cause_leaves_nothing_and_is_no_failure(
    muster: Muster, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.log").write_text("hello\n")
    (tmp_path / "d.json").write_text(muster("diagnose", str(tmp_path / "x.log"), "--json")[1])
    code, out, _ = muster("history-add", str(tmp_path / "d.json"), "--job", "1", "--nodes", "gpu-1")
    assert code is Exit.PASS
    assert "nothing to keep" in out
    assert not any(folder.iterdir())


def test_the_gpu_that_was_there_is_kept_by_the_driver_s_word(
    muster: Muster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:1b:00.0").mkdir()
    (tmp_path / "0000:1b:00.0" / "information").write_text("Model: \t NVIDIA H200\nGPU UUID: \t GPU-0a1b-2c\n")
    monkeypatch.setattr(command, "GPUS", tmp_path)
    log = tmp_path / "gpu-1-kern.log"
    log.write_text("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n")
    (tmp_path / "d.json").write_text(muster("diagnose", str(log), "--json")[1])
    for job, here in (("1", "gpu-1"), ("2", "gpu-0")):
        muster("history-add", str(tmp_path / "d.json"), "--job", job, "--nodes", "gpu-0,gpu-1", "--here", here)
    told = json.loads(muster("history", "--json")[1])
    kept = {each["job"]: (each["gpu"], each["gpu_uuid"]) for each in told["nodes"][0]["incidents"]}
    assert kept == {"1": ("0000:1b:00.0", "GPU-0a1b-2c"), "2": ("0000:1b:00.0", None)}


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ((), Exit.PASS, "no job is known to have died on a node in 30 days"),
        (("gpu-9",), Exit.PASS, "no job is known to have died in 30 days on gpu-9"),
        (("--since", "12h"), Exit.PASS, "in 12 hours"),
        (("--since", "yesterday"), Exit.USAGE, "as 30d or 12h"),
        (("--since", "0d"), Exit.USAGE, "as 30d or 12h"),
        (("--folder", "/nonexistent"), Exit.USAGE, "No such file"),
    ],
)
def test_nothing_known_is_said_in_words(
    muster: Muster, folder: Path, argv: tuple[str, ...], code: Exit, says: str
) -> None:
    ended, out, err = muster("history", *argv)
    assert ended is code
    assert says in out + err


def test_without_a_folder_it_says_how_to_name_one(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_HISTORY", raising=False)
    code, _, err = muster("history")
    assert code is Exit.USAGE
    assert "MUSTER_HISTORY" in err


def test_a_history_that_cannot_be_read_stops_no_diagnosis(muster: Muster, tmp_path: Path) -> None:
    code, out, _ = muster("diagnose", str(LOGS / "hang"), "--history", str(tmp_path / "none"))
    assert code is Exit.PASS
    assert "not read" in out
    assert "seen before" not in out


def test_a_torn_record_is_said_and_the_answer_is_not_complete(muster: Muster, keep: Muster, folder: Path) -> None:
    keep("1")
    keep("2")
    path = folder / "gpu-1" / "2.json"
    path.write_bytes(path.read_bytes()[:50])
    code, out, _ = muster("history")
    assert code is Exit.INCOMPLETE
    assert "not read" in out
    assert "torn" in out


def test_an_array_task_is_not_counted_as_one_that_was_before_it(muster: Muster, keep: Muster, tmp_path: Path) -> None:
    (tmp_path / "sacct").write_text("#!/bin/sh\necho '4713|4711_3|ada|gpu-1|1796000000|1796000600'\n")
    (tmp_path / "sacct").chmod(0o755)
    assert keep("4713")[0] is Exit.PASS
    told = Diagnosis.model_validate_json(muster("diagnose", str(LOGS / "hang"), "--json")[1])
    made = {job: command.seen_before(told, tmp_path / "history", job).before for job in ("4711_3", "4713", "4712")}
    assert {job: each.jobs for job, each in made.items() if each} == {"4711_3": 0, "4713": 0, "4712": 1}


def test_an_end_that_slurms_clock_has_ahead_counts_at_once(muster: Muster, keep: Muster, tmp_path: Path) -> None:
    ahead = int(time.time()) + 3600
    (tmp_path / "sacct").write_text(f"#!/bin/sh\necho '1|1|ada|gpu-1|1796000000|{ahead}'\n")
    (tmp_path / "sacct").chmod(0o755)
    assert keep("1")[0] is Exit.PASS
    assert History.model_validate_json(muster("history", "--json")[1]).nodes[0].jobs == 1
