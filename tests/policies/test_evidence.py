"""What a run leaves behind can be read again, and nothing else can."""

import json
import os
import stat
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sample_runs import NOW, run

from policies.evidence import LATEST, Award, EvidenceError, load, run_id, save, write
from policies.issue import evidence_digest

RUN = run()


def test_a_run_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    folder = save(RUN, tmp_path, NOW)
    assert folder == tmp_path / "20261129T142000Z"
    assert load(folder) == load(tmp_path / LATEST) == RUN


def test_a_certificate_can_be_traced_to_the_evidence_that_it_rests_on(tmp_path: Path) -> None:
    kept = load(save(RUN, tmp_path, NOW))
    for examination in kept.examinations:
        verdicts = tuple(each for each in kept.verdicts if each.node == examination.node)
        certificate = kept.awards[examination.node].certificate
        assert certificate
        assert certificate.terms.evidence == evidence_digest(examination, verdicts)
        forged = (verdicts[0].model_copy(update={"found": "nothing"}), *verdicts[1:])
        assert certificate.terms.evidence != evidence_digest(examination, forged)


def test_latest_is_the_newest_run_also_when_an_older_one_is_saved_again(tmp_path: Path) -> None:
    older = RUN.model_copy(update={"id": run_id(NOW - timedelta(days=1))})
    for each in (older, RUN, older):
        save(each, tmp_path, NOW)
    assert load(tmp_path / LATEST).id == RUN.id
    assert sorted(each.name for each in tmp_path.iterdir()) == [older.id, RUN.id, LATEST]


@pytest.mark.parametrize("stray", [run_id(NOW + timedelta(days=365)), "zzz", "kept-for-later", "2027"])
def test_a_run_of_a_clock_that_was_ahead_or_a_folder_of_somebodys_own_is_not_the_latest(
    tmp_path: Path, stray: str
) -> None:
    (tmp_path / stray).mkdir()
    (tmp_path / stray / "run.json").write_text("{}")
    save(RUN, tmp_path, NOW)
    assert load(tmp_path / LATEST).id == RUN.id


def test_a_write_that_breaks_leaves_the_old_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(RUN, tmp_path, NOW)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space") as refused:
        save(RUN.model_copy(update={"topology": "<svg/>"}), tmp_path, NOW)
    assert refused.value.filename == str(folder / "run.json")
    assert load(folder) == RUN
    assert [each.name for each in folder.iterdir()] == ["run.json"]


def test_a_write_is_on_the_disk_before_its_name_is_and_its_name_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"file of {os.fstat(handle).st_size}")
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write(tmp_path / "x", "four")
    assert done == ["file of 4", "name", "folder"]


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_a_disk_that_refuses_leaves_nothing_and_its_error_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space") as refused:
        write(tmp_path / "x", "four")
    assert refused.value.filename == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none" / "x", "four")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file"),
        ("[]", "the file"),
        (json.dumps(RUN.model_dump(mode="json") | {"version": "muster/run/v9"}), "version"),
        (json.dumps(RUN.model_dump(mode="json") | {"extra": 1}), "extra"),
        (json.dumps(RUN.model_dump(mode="json"))[:-100], "the file"),
    ],
)
def test_a_run_of_another_form_is_refused_with_its_place(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(EvidenceError, match=f"run.json: {says}"):
        load(tmp_path)


def test_a_missing_run_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="run muster certify first"):
        load(tmp_path / "latest")


def test_an_award_is_a_certificate_or_reasons_and_never_neither_or_both() -> None:
    good = RUN.awards["gpu-0"]
    for broken in (
        {},
        {"envelope": good.envelope},
        {"certificate": good.certificate},
        {"envelope": good.envelope, "refused": ("no",)},
        {"envelope": good.envelope, "certificate": good.certificate, "refused": ("no",)},
    ):
        with pytest.raises(ValueError, match="either a certificate"):
            Award.model_validate(broken)


def test_an_instant_without_its_zone_is_no_run() -> None:
    with pytest.raises(ValueError, match="time zone"):
        run_id(datetime(2026, 11, 29))  # noqa: DTZ001


def test_a_run_keeps_no_path_of_the_machine_that_made_it(tmp_path: Path) -> None:
    assert "/nowhere" not in (save(RUN, tmp_path, NOW) / "run.json").read_text()
