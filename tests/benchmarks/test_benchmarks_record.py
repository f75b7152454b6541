"""Every benchmark prints a ratio, says the machine and keeps its raw numbers; `make bench` runs each."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.converge_vs_stock_ansible import fault
from benchmarks.preview_1024 import SIDES, machines, turns
from benchmarks.record import begin
from stacks.lab.model import Machine

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "record")


def test_the_ratio_the_machine_and_the_raw_numbers_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = begin("some", tmp_path / "made").end("a against b", 2.504, {"seconds": {"a": [2, 3], "b": [1]}})
    printed = capsys.readouterr().out
    told = json.loads(path.read_text())
    assert path == tmp_path / "made" / "some.json"
    assert told["ratio"] == 2.5
    assert told["seconds"] == {"a": [2, 3], "b": [1]}
    assert re.match(r"\d+ × .+, \d+ GiB, Linux", told["machine"])
    assert len(told["load_before"].split()) == 3
    assert "a against b: 2.50x" in printed
    assert told["machine"] in printed
    assert str(path) in printed


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_run_without_a_ratio_leaves_the_last_result_as_it_was(ratio: float, tmp_path: Path) -> None:
    (tmp_path / "some.json").write_text("the last result")
    with pytest.raises(ValueError, match="is no ratio"):
        begin("some", tmp_path).end("a against b", ratio, {})
    assert (tmp_path / "some.json").read_text() == "the last result"


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_is_run_by_make_bench_and_recorded_under_its_own_name(path: Path) -> None:
    recipe = re.search(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    assert f"benchmarks/{path.name}" in recipe[1]
    assert f'begin("{path.stem}"' in path.read_text()


def test_the_results_kept_are_those_of_benchmarks_that_there_are() -> None:
    kept = {path.stem for path in (ROOT / "benchmarks" / "results").iterdir()}
    assert kept <= {path.stem for path in BENCHMARKS}
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert {"when", "machine", "ratio"} <= json.loads(path.read_text()).keys()


def test_the_previewed_machines_are_what_the_provider_takes_and_as_many_as_asked(tmp_path: Path) -> None:
    made = machines(64, tmp_path)
    assert len(made) == 64
    found = [Machine.model_validate(inputs) for inputs in made.values()]
    addresses = {str(each.address) for each in found}
    assert len(addresses) == 64


def test_the_sides_take_turns_and_neither_is_always_first() -> None:
    taken = turns(2)
    assert taken[0] != taken[2]
    assert all(taken.count(side) == 2 for side in SIDES)


RECAP = """
PLAY RECAP *********************************************************************
control-0                  : ok=90   changed=0    unreachable=0    failed=0    skipped=7    rescued=0    ignored=0
gpu-0                      : ok=80   changed=0    unreachable=0    failed=0    skipped=9    rescued=0    ignored=0
"""


def test_a_stock_run_that_reached_every_node_and_changed_nothing_counts() -> None:
    assert fault(0, RECAP, ["control-0", "gpu-0"]) is None


@pytest.mark.parametrize(
    ("status", "printed", "said"),
    [
        (2, RECAP, "ended with 2"),
        (0, "", "told of no node"),
        (0, RECAP.replace("gpu-0", "gpu-1"), "told of control-0, gpu-1, not of control-0, gpu-0"),
        (0, RECAP.replace("ok=80", "ok=0"), "gpu-0"),
        (0, RECAP.replace("changed=0", "changed=1", 1), "control-0"),
        (0, RECAP.replace("unreachable=0", "unreachable=1", 1), "control-0"),
        (0, RECAP.replace("failed=0", "failed=1", 1), "control-0"),
    ],
)
def test_any_other_stock_run_does_not(status: int, printed: str, said: str) -> None:
    assert said in (fault(status, printed, ["control-0", "gpu-0"]) or "")
