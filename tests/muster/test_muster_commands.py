"""What commands promise whoever types them: exit codes, one document on stdout, errors that say what to do."""

import importlib.metadata
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sample_runs
from paper_pool import Slurm

from muster.commands.gate import duration
from muster.commands.nodes import _show, exit_of
from muster.console import Problem
from muster.standing import Standing
from policies import design
from policies.catalogue import load_catalogue
from policies.exits import Exit
from policies.fabric import FaultKind, Finding
from policies.pins import load_pins
from policies.verdict import State
from spec.load import load
from spec.plan import derive
from validation.diagnose.history import Incident
from validation.diagnose.records import add

Muster = Callable[..., tuple[Exit, str, str]]
ROOT = Path(__file__).parents[2]

FIVE = {
    "mtu: 1500": "mtu: 99999",
    "substrate: lab": "substrate: lap",
    "pins: lab": "pinned: lab",
    "scheduler: slurm": "scheduler: slrm",
    "lifetime: P7D": "lifetime: P700D",
}


def test_a_spec_with_five_errors_prints_five_with_their_lines_and_exits_2(muster: Muster, tmp_path: Path) -> None:
    text = (ROOT / "clusters/lab-containers.yaml").read_text()
    for good, bad in FIVE.items():
        assert good in text
        text = text.replace(good, bad, 1)
    path = tmp_path / "five.yaml"
    path.write_text(text)
    code, out, err = muster("plan", str(path))
    assert code is Exit.USAGE
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith(f"{path}:")]
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if any(bad in line for bad in FIVE.values())}
    told = {int(line.removeprefix(f"{path}:").split(":")[0]) for line in lines}
    assert wrong <= told
    assert "errors, nothing was changed" in err


def broken_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = load_pins("lab")
    components = {**pins.components, "fabric_manager": "580.82.07"}
    monkeypatch.setattr(design, "load_pins", lambda _: pins.model_copy(update={"components": components}))


@pytest.mark.parametrize("what", ["proof", "pins"])
def test_a_design_that_does_not_hold_is_a_wrong_configuration_and_exits_2(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = tmp_path / "lab.yaml"
    text = (ROOT / "clusters/lab-containers.yaml").read_text()
    path.write_text(text.replace("monitors: 3", "monitors: 2") if what == "proof" else text)
    if what == "pins":
        broken_pins(monkeypatch)
    named = "filesystem.monitors: 2" if what == "proof" else "pins: fabric_manager 580.82.07"
    code, out, _ = muster("plan", str(path))
    assert code is Exit.USAGE
    assert f"{path}:" in out
    assert named in out
    code, out, _ = muster("plan", str(path), "--json")
    assert code is Exit.USAGE
    assert [proof for proof in json.loads(out)["proofs"] if not proof["holds"] and not proof["exception"]]
    code, out, err = muster("up", "lab", "--spec", str(path))
    assert code is Exit.USAGE
    assert out == ""
    assert "nothing was built" in err


@pytest.mark.parametrize("argv", [("plan", "/nowhere.yaml"), ("plan",), ("plan", "x", "y"), ("gate",), ("nonsense",)])
def test_wrong_usage_and_missing_files_exit_2_without_a_traceback(muster: Muster, argv: tuple[str, ...]) -> None:
    code, out, err = muster(*argv)
    assert code is Exit.USAGE
    assert out == ""
    assert "Traceback" not in err
    assert err.strip()


def test_the_plan_for_machines_is_one_document_with_every_proof_by_name(muster: Muster) -> None:
    code, out, _ = muster("plan", str(ROOT / "clusters/h100-roce-1024.yaml"), "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    proofs = {proof["id"]: proof for proof in told["proofs"]}
    assert proofs["fabric.oversubscription"]["numbers"]["ratio"] == 1.0
    assert len(told["plan"]["nodes"]) > 128


def test_the_topology_is_drawn_where_it_is_asked_for(muster: Muster, tmp_path: Path) -> None:
    code, out, _ = muster(
        "plan", str(ROOT / "clusters/lab-containers.yaml"), "--svg", str(tmp_path / "new" / "lab.svg")
    )
    assert code is Exit.PASS
    assert (tmp_path / "new" / "lab.svg").read_text().startswith("<svg")
    assert "lab.svg" in out


def test_a_stack_that_does_not_stand_is_an_error_that_says_how_to_make_it(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    for argv in (("certify",), ("status",), ("verify",), ("gate", "--class", "lab"), ("drift",), ("converge",)):
        code, _, err = muster(*argv)
        assert code is Exit.ERROR, argv
        assert "make up" in err


def test_a_spec_that_was_edited_since_it_was_deployed_is_refused(muster: Muster, cluster: Standing) -> None:
    path = cluster.deployment.state / "deployment.json"
    path.write_text(path.read_text().replace(cluster.plan.digest, "0" * 64))
    code, _, err = muster("gate", "--class", "lab")
    assert code is Exit.USAGE
    assert "edited since" in err


def test_an_unknown_node_is_a_usage_error_that_names_those_there_are(muster: Muster, cluster: Standing) -> None:
    code, _, err = muster("certify", "gpu-9")
    assert code is Exit.USAGE
    assert "gpu-0" in err


def test_verify_tells_each_certificate_and_exits_5_where_one_is_missing(
    muster: Muster, cluster: Standing, certified: Callable[..., None]
) -> None:
    names = [node.name for node in cluster.plan.nodes]
    certified(*names)
    code, out, _ = muster("verify", "--json")
    assert code is Exit.PASS
    assert [row["node"] for row in json.loads(out)] == names
    cluster.certificate("gpu-0").unlink()
    code, out, _ = muster("verify", "--json")
    assert code is Exit.INVALID
    assert [row["node"] for row in json.loads(out) if not row["holds"]] == ["gpu-0"]


def test_a_certificate_in_another_nodes_place_is_refused(
    muster: Muster, cluster: Standing, certified: Callable[..., None]
) -> None:
    certified(*(node.name for node in cluster.plan.nodes))
    cluster.certificate("gpu-1").write_bytes(cluster.certificate("gpu-0").read_bytes())
    code, out, _ = muster("verify", "--json")
    assert code is Exit.INVALID
    (bad,) = [row for row in json.loads(out) if not row["holds"]]
    assert bad["kind"] == "WrongNode"


@pytest.mark.parametrize(("text", "span"), [("90m", 5400), ("36h", 129600), ("7d", 604800), ("0m", 0)])
def test_spans_of_time_are_read(text: str, span: int) -> None:
    assert duration(text) == timedelta(seconds=span)


@pytest.mark.parametrize("text", ["", "7", "d", "-1h", "1w", "1h30m", "999999d", "１d"])
def test_what_is_no_span_of_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(Problem) as wrong:
        duration(text)
    assert wrong.value.exit is Exit.USAGE


def test_controls_can_be_listed_by_area_and_an_empty_list_is_an_error(muster: Muster) -> None:
    code, out, _ = muster("controls", "gpu.", "--json")
    assert code is Exit.PASS
    assert all(control["id"].startswith("gpu.") for control in json.loads(out))
    assert muster("controls", "nothing")[0] is Exit.USAGE


@pytest.mark.parametrize("area", sorted({f"{each.id.partition('.')[0]}." for each in load_catalogue()}))
def test_the_controls_of_an_area_say_why_and_how_to_repair_on_80_columns(muster: Muster, area: str) -> None:
    told = json.loads(muster("controls", area, "--json")[1])
    code, out, _ = muster("controls", area)
    assert code is Exit.PASS
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    for control in told:
        for words in (control["id"], control["title"], control["why"], control["repair"]["do"]):
            assert " ".join(words.split()) in text
        if control["repair"]["role"]:
            assert f"(role {control['repair']['role']})" in text


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({}, Exit.PASS),
        ({"gpu__count": State.FAIL}, Exit.FAIL),
        ({"gpu__count": State.ERROR}, Exit.ERROR),
        ({"gpu__count": State.UNREACHABLE}, Exit.ERROR),
        ({"gpu__count": State.NOT_EVALUATED}, Exit.INCOMPLETE),
        ({"gpu__count": State.NOT_EVALUATED, "time__offset": State.FAIL}, Exit.FAIL),
    ],
)
def test_a_certification_ends_with_what_weighs_most(states: dict[str, State], code: Exit) -> None:
    plan = sample_runs.PLAN
    judged = tuple(
        verdict
        for node in plan.nodes
        for verdict in sample_runs.verdicts(node.name, **(states if node.name == "gpu-0" else {}))
    )
    assert exit_of(sample_runs.run(judged=judged)) is code


BETWEEN_LEAVES = Finding(kind=FaultKind.PATH, subject="leaf-0 to leaf-2", evidence="two pairs fail across")


@pytest.mark.parametrize(
    ("fabric", "code", "says"),
    [
        ({"state": State.FAIL, "findings": (BETWEEN_LEAVES,)}, Exit.FAIL, "fail: leaf-0 to leaf-2"),
        ({"state": State.ERROR, "reason": "no rank came up"}, Exit.ERROR, "error: no rank came up"),
        ({"state": State.NOT_EVALUATED, "reason": "fewer than two nodes"}, Exit.INCOMPLETE, "fewer than two nodes"),
    ],
)
def test_a_fault_between_nodes_is_told_and_is_no_pass_even_where_every_node_is_certified(
    fabric: dict[str, Any], code: Exit, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sample_runs.run(fabric=sample_runs.fabric(**fabric))
    assert all(given.certificate for given in run.awards.values()) is (fabric["state"] is State.FAIL)
    assert exit_of(run) is code
    _show(run, {})
    assert says in capsys.readouterr().out


@pytest.mark.parametrize("argv", [("certify",), ("certify", "gpu-0"), ("drift", "--fast")])
def test_two_runs_on_one_stack_do_not_undo_each_others_certificates(
    muster: Muster, cluster: Standing, certified: Callable[..., None], argv: tuple[str, ...]
) -> None:
    certified("gpu-0")
    with cluster.alone():
        code, out, err = muster(*argv)
    assert code is Exit.ERROR
    assert out == ""
    assert "at work on lab" in err
    assert cluster.envelopes().keys() == {"gpu-0"}
    with cluster.alone():
        pass  # it is free again


def test_status_shows_certificates_and_places_in_the_pool(
    muster: Muster, cluster: Standing, certified: Callable[..., None], slurm: Slurm
) -> None:
    certified("gpu-0")
    code, out, _ = muster("status", "--json")
    rows = {row["node"]: row for row in json.loads(out)}
    assert code is Exit.PASS
    assert rows["gpu-0"]["holds"]
    assert not rows["gpu-1"]["holds"]
    assert rows["gpu-1"]["pool"] == "idle+drain"
    assert rows["control-0"]["pool"] is None


@pytest.mark.parametrize("change", ["spec", "cluster", "image", "pins"])
def test_a_certificate_that_the_gate_refuses_is_good_neither_for_verify_nor_for_status(
    muster: Muster,
    cluster: Standing,
    certified: Callable[..., None],
    slurm: Slurm,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """Also where only the stack knows: it is of another spec, cluster or image, or by other pins."""
    names = [node.name for node in cluster.plan.nodes]
    certified(*names)
    if change == "pins":
        pins = cluster.pins
        newer = pins.model_copy(update={"components": {**pins.components, "nccl": "2.99.1"}})
        monkeypatch.setattr("muster.standing.load_pins", lambda _: newer)
    deployment = cluster.deployment.state / "deployment.json"
    told = json.loads(deployment.read_text())
    if change == "image":
        told["images"] = dict.fromkeys(names, "e" * 64)
    elif change in ("spec", "cluster"):
        path = cluster.deployment.state / "other.yaml"
        good, bad = ("name: lab", "name: other") if change == "cluster" else ("lifetime: P7D", "lifetime: P6D")
        text = Path(told["spec"]).read_text()
        assert good in text
        path.write_text(text.replace(good, bad, 1))
        told |= {"spec": str(path), "spec_digest": derive(load(path)).digest}
    deployment.write_text(json.dumps(told))
    kinds = {"spec": "SpecChanged", "cluster": "WrongCluster", "image": "ImageChanged", "pins": "PinsChanged"}
    for argv, code in ((("verify",), Exit.INVALID), (("status",), Exit.PASS)):
        ended, out, _ = muster(*argv, "--json")
        assert ended is code
        assert {row["kind"] for row in json.loads(out)} == {kinds[change]}
        assert not any(row["holds"] for row in json.loads(out))


def test_verify_looks_at_the_node_that_is_named_and_at_no_other(
    muster: Muster, cluster: Standing, certified: Callable[..., None]
) -> None:
    certified("gpu-0")
    assert muster("verify", "--node", "gpu-0")[0] is Exit.PASS
    assert muster("verify", "--node", "gpu-1")[0] is Exit.INVALID
    assert muster("verify", "--node", "gpu-9")[0] is Exit.USAGE


def test_an_expired_certificate_says_so_and_exits_5(
    muster: Muster, cluster: Standing, certified: Callable[..., None]
) -> None:
    certified("gpu-0", now=datetime.now(UTC) - timedelta(days=8))
    code, out, _ = muster("verify", str(cluster.certificate("gpu-0")), "--json")
    assert code is Exit.INVALID
    assert json.loads(out)[0]["kind"] == "Expired"


def test_it_tells_its_version(muster: Muster) -> None:
    assert muster("--version") == (Exit.PASS, f"muster {importlib.metadata.version('muster')}\n", "")


def test_status_counts_the_jobs_that_died_on_a_node_where_a_history_is_named(
    muster: Muster, cluster: Standing, slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "history").mkdir(mode=0o755)
    for job in "12":
        told = {"node": "gpu-1", "job": job, "at": datetime.now(UTC), "kind": "gpu.off_bus", "rule": "xid.off_bus"}
        add(tmp_path / "history", Incident.model_validate({**told, "confidence": "certain"}))
    rows = json.loads(muster("status", "--history", str(tmp_path / "history"), "--json")[1])
    assert {row["node"]: row["jobs_died"] for row in rows if row["node"].startswith("gpu")} == {"gpu-0": 0, "gpu-1": 2}
    assert "jobs died" in muster("status", "--history", str(tmp_path / "history"))[1]
    assert "jobs died" not in muster("status")[1]
    assert muster("status", "--history", str(tmp_path / "none"))[0] is Exit.USAGE
