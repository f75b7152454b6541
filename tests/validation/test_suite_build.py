"""The suite's file: the same for the same content, another for any other, and nothing of the node's own in it."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from validation import suite


def test_the_same_content_is_the_same_file_in_any_process() -> None:
    script = "from validation import suite; print(suite.digest())"
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "MUSTER_HOME": "/nonexistent"},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert told == [suite.digest()] * 2


def test_any_change_of_content_changes_the_digest() -> None:
    files = {"__main__.py": b"print(1)\n", "a.py": b"x = {'b', 'a', 'c'}\n"}
    whole = suite.pack(files)
    assert suite.pack(dict(reversed(files.items()))) == whole
    for changed in (
        {**files, "a.py": b"x = {'b', 'a', 'd'}\n"},
        {**files, "b.py": b""},
        {"__main__.py": b"print(1)\n"},
    ):
        assert suite.pack(changed) != whole


def test_the_file_is_named_by_its_digest_and_made_again_where_it_is_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    path = suite.build()
    assert path == tmp_path / "cache" / "suite" / f"{suite.digest()}.pyz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert suite.build().read_bytes() == whole
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_it_holds_the_suite_and_no_other_room() -> None:
    names = zipfile.ZipFile(io.BytesIO(suite._packed())).namelist()
    assert "validation/node/session.py" in names
    assert "validation/node/session.pyc" in names
    for stranger in ("pydantic", "policies", "spec/", "validation/examine", "validation/suite"):
        assert not [name for name in names if name.startswith(stranger)]


def test_the_sources_alone_are_enough_for_a_python_of_another_version(tmp_path: Path) -> None:
    whole = zipfile.ZipFile(io.BytesIO(suite._packed()))
    path = tmp_path / "sources.pyz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in whole.namelist():
            content = whole.read(name)
            archive.writestr(name, b"\0\0\0\0" + content[4:] if name.endswith(".pyc") else content)
    done = subprocess.run(
        [sys.executable, "-ISB", str(path)],
        input=b'{"node": "a", "options": {"only": ["cpu.count"]}}',
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b'"closing"' in done.stdout
