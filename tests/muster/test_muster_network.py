"""`muster plan-network`: its exit codes, what it prints, its page, and where it takes the network's speed from."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
import sample_runs

from policies import evidence
from policies.exits import Exit
from policies.verdict import State
from spec.load import load
from spec.plan import derive
from spec.schema import Role

Muster = Callable[..., tuple[Exit, str, str]]
ROOT = Path(__file__).parents[2]
H100 = str(ROOT / "clusters" / "h100-roce-1024.yaml")
LAB = str(ROOT / "clusters" / "lab-containers.yaml")
LLAMA = str(ROOT / "examples" / "workloads" / "llama3-70b.yaml")
RL = str(ROOT / "examples" / "workloads" / "reinforcement-8b.yaml")
SCHEMA = json.loads((ROOT / "docs" / "reference" / "plan-network.schema.json").read_text())
SMALL = """\
model: {name: small, layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 1024}
layouts:
  - {name: both, data: 16}
training:
  global_batch: 64
"""


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reports, whatever lies in the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_the_summary_fits_a_screen_and_says_what_is_asked(muster: Muster) -> None:
    code, out, _ = muster("plan-network", LLAMA, "--cluster", H100)
    assert code is Exit.PASS
    assert len(out.splitlines()) <= 30
    told = ("step", "MFU", "communication", "memory", "fits", "checkpoint", "every", "goodput", "costs", "±", "ENOUGH")
    assert [each for each in told if each not in out] == []
    for plane in ("rail", "spine", "storage", "management"):
        assert f"\n{plane}" in out
    assert "not measured" in out


def test_not_enough_is_a_failure_and_says_of_what(muster: Muster, tmp_path: Path) -> None:
    code, out, _ = muster("plan-network", LLAMA, "--cluster", H100, "--layout", "hsdp")
    assert code is Exit.FAIL
    assert "NOT ENOUGH  rail" in out
    large = tmp_path / "large.yaml"
    large.write_text(Path(LLAMA).read_text().replace("hidden: 8192", "hidden: 32768"))
    code, out, _ = muster("plan-network", str(large), "--cluster", H100)
    assert code is Exit.FAIL
    assert "NOT ENOUGH  memory" in out
    assert "does not fit" in out


@pytest.mark.parametrize(
    "more",
    [(LLAMA,), (LLAMA, "--search", "64"), (LLAMA, "--search", "all"), (LLAMA, "--compare"), (LLAMA, RL), (RL,)],
    ids=lambda more: " ".join(Path(each).name for each in more),
)
def test_json_has_the_published_schema(muster: Muster, more: tuple[str, ...]) -> None:
    code, out, _ = muster("plan-network", *more, "--cluster", H100, "--json")
    told = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert (code is Exit.PASS) == told["enough"]
    assert told["plans"]


def test_a_search_prints_the_best_layouts_and_plans_the_first(muster: Muster) -> None:
    code, out, _ = muster("plan-network", LLAMA, "--cluster", H100, "--search", "128")
    assert code is Exit.PASS
    lines = out.splitlines()
    assert lines[0].startswith("best layouts on 128 GPUs")
    best = lines[2].partition("  ")[0]
    assert f"llama3-70b · {best} · 128 of 1,024 GPUs" in out


def test_several_workloads_are_compared(muster: Muster, small: Path) -> None:
    code, out, _ = muster("plan-network", LLAMA, str(small), "--cluster", H100)
    assert code is Exit.PASS
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["small", "llama3-70b", "llama3-70b", "llama3-70b"]


def test_layouts_that_cannot_run_are_told_in_a_comparison(muster: Muster, small: Path) -> None:
    small.write_text(SMALL.replace("training:", "  - {name: odd, tensor: 3}\ntraining:"))
    code, out, _ = muster("plan-network", str(small), "--cluster", H100, "--compare")
    assert code is Exit.PASS
    assert "cannot run" in out
    assert "small, odd: layout.tensor: tensor is 3" in out
    small.write_text(SMALL.replace("data: 16", "tensor: 5").replace("training:", "  - {tensor: 3}\ntraining:"))
    code, out, _ = muster("plan-network", str(small), "--cluster", H100, "--compare", "--html", "page.html")
    assert code is Exit.USAGE
    assert "NOT ENOUGH  no layout can run" in out
    assert "No layout can run" in Path("page.html").read_text()


def test_the_page_is_written_where_it_was_asked(muster: Muster) -> None:
    code, out, _ = muster("plan-network", LLAMA, "--cluster", H100, "--html", "pages/network.html")
    assert code is Exit.PASS
    assert out.splitlines()[-1] == "page: pages/network.html"
    assert "<h2>Step time by cause</h2>" in Path("pages/network.html").read_text()


def test_all_errors_of_all_files_come_at_once(muster: Muster, small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace("layers: 4", "layers: none").replace("global_batch", "globel_batch"))
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(Path(H100).read_text().replace("rails: 8", "rails: eight"))
    code, out, err = muster("plan-network", str(small), "missing.yaml", "--cluster", str(cluster))
    assert code is Exit.USAGE
    assert out == ""
    for said in (
        f"{cluster}:18: networks.fabric.rails: ",
        f"{small}:1: model.layers: ",
        f"{small}:5: training.globel_batch: no such field",
        "did you mean global_batch?",
        "missing.yaml:1: there is no such file",
        "nothing was planned",
    ):
        assert said in err


def test_what_cannot_run_names_the_line_of_its_layout(muster: Muster, small: Path) -> None:
    small.write_text(SMALL.replace("training:", "  - name: odd\n    tensor: 3\n    data: 5\ntraining:"))
    code, _, err = muster("plan-network", str(small), "--cluster", H100, "--layout", "odd")
    assert code is Exit.USAGE
    assert f"{small}:5: layouts[1].tensor: tensor is 3" in err
    assert f"{small}:8: training.global_batch: 64 sequences" in err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--search", "0"), "no number of GPUs"),
        (("--search", "many"), "no number of GPUs"),
        (("--search", "2048"), "which has 1024"),
        (("--search", "64", "--compare"), "takes one workload"),
        (("--search", "64", "--layout", "fsdp"), "takes one workload"),
        (("--layout", "none"), "its layouts are: 3d, fsdp, hsdp"),
        (("--group", "none"), "name one group with --group"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_says_what_to_do(muster: Muster, more: tuple[str, ...], words: str) -> None:
    code, out, err = muster("plan-network", LLAMA, "--cluster", H100, *more)
    assert code is Exit.USAGE
    assert out == ""
    assert words in err


def test_a_gpu_that_the_catalogue_lacks_can_be_declared(muster: Muster, small: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(Path(H100).read_text().replace("NVIDIA H100 80GB HBM3", "ACME One"))
    code, _, err = muster("plan-network", str(small), "--cluster", str(cluster))
    assert code is Exit.USAGE
    assert "the planner knows no GPU 'ACME One'" in err
    small.write_text(
        f"{SMALL}gpu: {{name: ACME One, peaks: {{bf16: 5.0e+14}}, memory_gib: 80, memory_gbs: 3000, nvlink: 400, "
        "efficiency: {bf16: 0.5}, source: its data sheet}\n"
    )
    code, _, _ = muster("plan-network", str(small), "--cluster", str(cluster))
    assert code is Exit.PASS


def measure(reports: Path, backend: str) -> None:
    plan = derive(load(Path(LAB)))
    nodes = tuple(node.name for node in plan.with_role(Role.COMPUTE))
    fabric = sample_runs.fabric(plan, sweeps=(sample_runs.sweep(nodes, backend=backend),), state=State.FAIL)
    made = sample_runs.run(plan).model_copy(update={"fabric": fabric})
    evidence.save(made, reports / "lab", datetime.now(UTC))


def test_the_clusters_own_measurement_is_taken_unless_the_nominal_one_is_asked_for(
    muster: Muster, small: Path, tmp_path: Path
) -> None:
    argv = ("plan-network", str(small), "--cluster", LAB)
    nominal = json.loads(muster(*argv, "--json")[1])
    measure(tmp_path / "reports", "nccl")
    code, out, _ = muster(*argv)
    assert code in (Exit.PASS, Exit.FAIL)
    assert "network     measured: NCCL's all-reduce, 16 ranks on 2 nodes (reports/lab/20261129T142000Z" in out
    told = json.loads(muster(*argv, "--json")[1])
    assert told["network"]["measured"]
    assert told["plans"][0]["measured"]
    assert told["plans"][0]["step"]["seconds"] != nominal["plans"][0]["step"]["seconds"]
    asked = json.loads(muster(*argv, "--nominal", "--json")[1])
    assert asked["plans"] == nominal["plans"]
    assert "as asked for" in asked["network"]["source"]


def test_gloo_is_not_taken_for_nccl_and_that_is_said(muster: Muster, small: Path, tmp_path: Path) -> None:
    measure(tmp_path / "reports", "gloo")
    _, out, _ = muster("plan-network", str(small), "--cluster", LAB)
    assert "not measured" in out
    assert "ran on gloo, not on NCCL" in out


def test_the_workloads_own_curve_comes_before_the_clusters(muster: Muster, small: Path, tmp_path: Path) -> None:
    measure(tmp_path / "reports", "nccl")
    small.write_text(f"{SMALL}between: {{points: [{{bytes: 1.0e+9, busbw: 300}}], source: my own sweep}}\n")
    _, out, _ = muster("plan-network", str(small), "--cluster", LAB)
    assert "network     measured: my own sweep" in out


@pytest.mark.parametrize("command", ["plan-network", "plan"])
def test_nothing_that_a_file_says_rules_the_terminal(muster: Muster, small: Path, command: str) -> None:
    small.write_text(SMALL + '"\\e[2J\\u202e": 1\n')
    code, _, err = muster(command, str(small), *(("--cluster", H100) if command == "plan-network" else ()))
    assert code is Exit.USAGE
    assert "no such" in err
    assert "\x1b" not in err
    assert "\u202e" not in err
