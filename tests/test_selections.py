"""`make unit`, `make test` and `make soak` run what they say, and together every test there is."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

Marks = dict[str, set[str]]
"""The markers of each test that a run would take, by the test's id."""

COLLECT = r"""
import json
import sys
import pytest

class Seen:
    def pytest_collection_finish(self, session):
        self.marks = {}
        for item in session.items:
            # Ids that a function made are escaped again in each collection after the first.
            self.marks[item.nodeid.replace("\\", "")] = sorted({mark.name for mark in item.iter_markers()})

found = []
for argv in json.loads(sys.argv[1]):
    seen = Seen()
    assert pytest.main([*argv, "--collect-only", "-q", "-p", "no:syrupy"], plugins=[seen]) == 0
    found.append(seen.marks)
print(json.dumps(found), file=sys.stderr)
"""
"""Collects for several command lines in one process, which imports each test file once. syrupy would fail a run that
uses no snapshot."""


def arguments(target: str) -> list[str]:
    """What a target of the Makefile gives to pytest."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    (line,) = [each for each in recipe[1].splitlines() if "pytest" in each]
    return shlex.split(line.strip().removeprefix("@.venv/bin/pytest"))


@pytest.fixture(scope="module")
def runs() -> dict[str, Marks]:
    """Which tests each target runs; `all` are those that there are."""
    asked = {target: arguments(target) for target in ("unit", "test", "soak")} | {"all": ["-m", ""]}
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, json.dumps(list(asked.values()))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(done.stderr.splitlines()[-1])
    return {
        target: {name: set(marks) for name, marks in each.items()} for target, each in zip(asked, told, strict=True)
    }


def test_test_and_soak_share_no_test_and_leave_none_out(runs: dict[str, Marks]) -> None:
    assert not runs["test"].keys() & runs["soak"].keys()
    assert runs["test"].keys() | runs["soak"].keys() == runs["all"].keys()
    assert len(runs["all"]) > 1000
    assert runs["soak"]


def test_unit_is_what_test_runs_without_a_lab(runs: dict[str, Marks]) -> None:
    assert runs["unit"].keys() <= runs["test"].keys()
    rest = {name: marks for name, marks in runs["test"].items() if name not in runs["unit"]}
    assert rest
    assert all(marks & {"lab", "vm"} for marks in rest.values())
    assert not any(marks & {"lab", "vm", "soak"} for marks in runs["unit"].values())


def test_every_test_of_a_lab_is_known_as_one(runs: dict[str, Marks]) -> None:
    of_the_lab = {name: marks for name, marks in runs["all"].items() if name.startswith("tests/lab/")}
    assert of_the_lab
    assert all("lab" in marks for marks in of_the_lab.values())


def test_tests_that_need_a_gpu_are_taken_wherever_tests_run(runs: dict[str, Marks]) -> None:
    """They skip themselves, and the end of the run says so: deselected, nobody would hear of them."""
    marked = {name for name, marks in runs["all"].items() if "gpu" in marks}
    assert len(marked) >= 2
    assert marked <= runs["unit"].keys()
    assert marked <= runs["test"].keys()
