"""Slurm is asked only for fields that no user can write in, and what it says is bounded."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from validation.diagnose.allocation import Allocation, allocation_of, expanded
from validation.diagnose.sources import SourceError


class Slurm:
    """Stand-ins for its commands, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.called = folder, folder / "called"
        self.called.touch()

    def says(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.called}\n{text}\n')
        path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    made = Slurm(tmp_path)
    made.says("scontrol", "printf 'gpu-0\\ngpu-1\\n'")
    return made


def test_accounting_is_asked_first_and_the_last_run_counts(slurm: Slurm) -> None:
    rows = "7|7|ada|gpu-9|1764520000|1764520100\\n7|7|ada|gpu-[0-1]|1764526000|1764526100\\n"
    slurm.says("sacct", f"printf '{rows}'")
    start, end = datetime.fromtimestamp(1764526000, UTC), datetime.fromtimestamp(1764526100, UTC)
    assert allocation_of("7") == Allocation("7", "ada", ("gpu-0", "gpu-1"), start, end)
    assert "squeue" not in slurm.called.read_text()
    asked = slurm.called.read_text()
    assert not any(free in asked for free in ("JobName", "Comment", "SubmitLine", "%j", "%k", "%o"))


def test_the_controller_is_asked_where_there_is_no_accounting(slurm: Slurm) -> None:
    slurm.says("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    slurm.says("squeue", "echo '9|7_2|ada|gpu-3|2026-11-30T10:00:00|N/A'")
    found = allocation_of("7_2")
    assert (found.job, found.nodes, found.end) == ("9", ("gpu-3",), None)
    assert found.start == datetime(2026, 11, 30, 10, tzinfo=UTC)


@pytest.mark.parametrize("row", ["", "8|8|ada|gpu-3|1|2", "7|7|ada|$(reboot)|1|2", "7|7|ada||1|2", "7|7|ada"], ids=str)
def test_an_answer_of_something_else_is_none(slurm: Slurm, row: str) -> None:
    for name in ("sacct", "squeue"):
        slurm.says(name, f"echo '{row}'")
    with pytest.raises(SourceError, match="names no nodes"):
        allocation_of("7")


@pytest.mark.parametrize(
    "text", ["", "gpu 0", "gpu-0;x", "$(x)", "../x", "-x", ",", "x" * 70_000], ids=lambda each: each[:9]
)
def test_a_list_of_nodes_that_is_none_is_refused(slurm: Slurm, text: str) -> None:
    with pytest.raises(SourceError, match=" · "):
        expanded(text)


def test_without_slurm_it_says_where_to_run_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="no sacct here"):
        allocation_of("7")
    assert expanded("gpu-1,gpu-0,gpu-1") == ("gpu-1", "gpu-0")
