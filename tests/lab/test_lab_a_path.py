"""The main job: a lab that `muster up` stood up is certified, opened and reported, and stays as it is."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from standing_lab import Lab

from policies.exits import Exit
from stacks import lifecycle


def test_every_node_holds_a_certificate_that_verifies_and_the_pool_is_open(lab: Lab) -> None:
    rows = lab.told("verify")
    assert [row["node"] for row in rows] == list(lab.deployment.nodes)
    assert all(row["holds"] for row in rows)
    assert lab.pool() == {"gpu-0": "idle", "gpu-1": "idle"}


def test_a_job_runs_on_both_nodes_and_sees_the_filesystem(lab: Lab) -> None:
    said = lab.ssh(
        "control-0", "timeout", "60", "srun", "--immediate=30", "-N2", "sh", "-c", "'hostname; stat -f -c %T /scratch'"
    )
    assert {"gpu-0", "gpu-1"} <= set(said.split())


def test_certificates_say_what_is_not_real_and_the_production_gate_refuses_them(lab: Lab) -> None:
    for row in lab.told("verify"):
        terms = row["certificate"]["terms"]
        assert terms["certificate_class"] == "lab"
        assert terms["seen"]["machine"] == "container"
        assert terms["seen"]["simulated"]
    assert lab.told("gate", "--class", "lab")["go"]
    refused = lab.told("gate", "--class", "production", code=Exit.INVALID)
    assert not refused["go"]
    assert {reason["subject"] for reason in refused["reasons"]} >= {"gpu-0", "gpu-1"}


def test_a_certificate_that_is_edited_copied_or_of_another_key_is_refused_each_in_its_own_words(
    lab: Lab, tmp_path: Path
) -> None:
    good = lab.deployment.state / "certificates" / "gpu-0.json"
    edited, copied = tmp_path / "edited.json", tmp_path / "copied.json"
    envelope = json.loads(good.read_text())
    payload = envelope["payload"]
    envelope["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
    edited.write_text(json.dumps(envelope))
    shutil.copy(good, copied)
    other = tmp_path / "other"
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from pathlib import Path; from policies import keys; keys.create(Path({str(other)!r}))",
        ],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    public = next(other.glob("*.pub"))
    stack = ("--stack", lab.stack, "--json")
    for argv, kind in (
        ((str(edited),), "BadSignature"),
        ((str(copied), "--node", "gpu-1"), "WrongNode"),
        ((str(copied), "--identity", "0" * 64), "WrongNode"),
        ((str(copied), "--key", str(public)), "UnknownKey"),
        ((str(tmp_path / "none.json"),), "Missing"),
    ):
        (row,) = json.loads(lab.muster("verify", *argv, *stack, code=Exit.INVALID).stdout)
        assert row["kind"] == kind, row


def test_a_preview_right_after_up_would_change_nothing(lab: Lab) -> None:
    assert lifecycle.preview(lab.stack, None, lambda *_: None).none


def test_a_second_converge_changes_nothing_and_check_mode_knows_of_nothing(lab: Lab) -> None:
    again = lab.told("converge")
    assert again["changed_tasks"] == 0, again["changes"]
    check = lab.told("converge", "--check")
    assert check["changed_tasks"] == 0, check["changes"]
    assert check["unknown"] == []


def test_a_cluster_that_nobody_touched_has_not_drifted(lab: Lab) -> None:
    report = lab.told("drift")["drift"]
    assert report["items"] == []
    assert set(report["layers"].values()) == {"in_sync"}
    assert lab.pool() == {"gpu-0": "idle", "gpu-1": "idle"}


def test_the_report_is_one_page_that_a_browser_opens_offline(lab: Lab, tmp_path: Path) -> None:
    paths = lab.told("report")
    assert {Path(path).suffix for path in paths.values()} == {".html", ".json", ".xml"}
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("chromium is not installed; ./setup --lab installs it")
    argv = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    argv += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    argv += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{paths['html']}"]
    page = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout
    for word in ("gpu-0", "gpu-1", "storage-1", "control-0", "simulated", "all_reduce"):
        assert word in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
