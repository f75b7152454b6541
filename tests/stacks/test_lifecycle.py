"""What people read of the engine's events, and what an ended run leaves behind."""

import json
import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pulumi.automation import EngineEvent

from spec.deployment import Deployment
from stacks import lifecycle
from stacks.lab import __main__ as by_hand
from stacks.lab import lab

URN = "urn:pulumi:lab::muster::muster:lab:Machine::gpu-0"


def test_a_failed_resource_is_said_by_name_without_the_engines_colours() -> None:
    event = EngineEvent.from_json(
        {
            "sequence": 1,
            "timestamp": 1,
            "diagnosticEvent": {
                "urn": URN,
                "message": "<{%reset%}>gpu-0 does not answer<{%reset%}>\n",
                "severity": "error",
                "color": "raw",
            },
        }
    )
    assert list(lifecycle.lines(event, {})) == [("gpu-0: gpu-0 does not answer", True, True)]


def test_a_made_resource_is_kept_and_one_in_the_making_only_shown() -> None:
    step = {"op": "create", "urn": URN, "type": "muster:lab:Machine", "provider": "p"}
    begun = EngineEvent.from_json({"sequence": 1, "timestamp": 1, "resourcePreEvent": {"metadata": step}})
    ended = EngineEvent.from_json({"sequence": 2, "timestamp": 2, "resOutputsEvent": {"metadata": step}})
    assert list(lifecycle.lines(begun, {"create": "made"})) == [("gpu-0: making", False, False)]
    assert list(lifecycle.lines(ended, {"create": "made"})) == [("gpu-0: made", True, False)]


def test_only_same_is_no_change() -> None:
    assert lifecycle.Changes(counts={"same": 9}).none
    assert not lifecycle.Changes(counts={"same": 8, "delete": 1}).none


def _lock(backend: Path, pid: int, host: str) -> Path:
    path = backend / ".pulumi/locks/organization/muster/lab/x.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "username": "root", "hostname": host}))
    return path


def test_a_lock_whose_engine_is_dead_goes_and_all_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "BACKEND", tmp_path)
    here = os.uname().nodename
    dead = _lock(tmp_path, 2**22 + 1, here)
    lifecycle._remove_dead_locks("lab")
    assert not dead.exists()
    elsewhere = _lock(tmp_path, 2**22 + 1, "another-host")
    lifecycle._remove_dead_locks("lab")
    assert elsewhere.exists()
    other_stack = _lock(tmp_path, 2**22 + 1, here)
    lifecycle._remove_dead_locks("lab-wide")
    assert other_stack.exists()


def test_an_engine_that_was_killed_and_nobody_asked_for_yet_works_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "BACKEND", tmp_path)
    engine = tmp_path / "pulumi"
    engine.symlink_to("/bin/sleep")
    with subprocess.Popen([engine, "60"]) as process:
        lock = _lock(tmp_path, process.pid, os.uname().nodename)
        while Path(f"/proc/{process.pid}/comm").read_text() != "pulumi\n":
            time.sleep(0.01)
        assert lifecycle._remove_dead_locks("lab") == process.pid
        assert lock.exists()
        process.kill()
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert lifecycle._remove_dead_locks("lab") is None
        assert not lock.exists()


def test_a_run_waits_for_another_on_its_stack_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "BACKEND", tmp_path)
    monkeypatch.setattr(lifecycle.time, "sleep", lambda _: None)
    answers = [True, True, False]
    monkeypatch.setattr(lifecycle, "_is_engine", lambda _: answers.pop(0))
    lock = _lock(tmp_path, 4711, os.uname().nodename)
    said: list[tuple[str, bool]] = []
    lifecycle._wait_for_other("lab", lambda text, keep: said.append((text, keep)))
    assert said == [("another run works on stack lab (process 4711): waiting for it", True)]
    assert answers == []
    assert not lock.exists()


def test_a_lock_that_goes_while_it_is_looked_at_is_left_to_who_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "BACKEND", tmp_path)
    lock = _lock(tmp_path, os.getpid(), os.uname().nodename)
    gone, half = lock.with_name("a.json"), lock.with_name("b.json")
    gone.symlink_to(tmp_path / "nowhere")
    half.write_text('{"pid": ')
    lifecycle._remove_dead_locks("lab")
    assert gone.is_symlink()
    assert half.exists()
    assert not lock.exists()  # its process lives, and is no engine


def test_a_cluster_that_does_not_stand_says_what_makes_it(state_home: Path) -> None:
    with pytest.raises(lifecycle.StackError, match="muster up makes it"):
        lifecycle.deployment("nothing")
    path = state_home / "muster/nothing/deployment.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(lifecycle.StackError, match="cannot be read"):
        lifecycle.deployment("nothing")


def test_the_deployment_is_read_as_it_was_exported(state_home: Path, plan, tmp_path: Path) -> None:
    found = lab.deployment("test", tmp_path / "x.yaml", plan, {})
    found.state.mkdir(parents=True)
    (found.state / "deployment.json").write_text(found.model_dump_json())
    assert lifecycle.deployment("test") == found
    assert isinstance(found, Deployment)


@pytest.mark.parametrize(("known", "made"), [(True, True), (True, False), (False, True)])
def test_up_finds_first_what_has_ended(
    known: bool, made: bool, state_home: Path, plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine itself takes its record for what stands: machines that a restart ended would stay ended."""
    found = lab.deployment("test", tmp_path / "x.yaml", plan, {})
    did: list[str] = []
    (found.state / "engine").mkdir(parents=True)
    if made:
        (found.state / "machines").mkdir()

    class Selected:
        def refresh(self, **_: object) -> None:
            did.append("refresh")

        def up(self, **_: object) -> SimpleNamespace:
            did.append("up")
            return SimpleNamespace(outputs={"cluster": SimpleNamespace(value=found.model_dump(mode="json"))})

    monkeypatch.setattr(lifecycle, "_known", lambda _: known)
    monkeypatch.setattr(lifecycle, "_selected", lambda *_: Selected())
    assert lifecycle.up("test", None, lambda *_: None) == found
    assert did == (["refresh", "up"] if known and made else ["up"])


def test_the_passphrase_is_made_once_and_its_loss_is_told(
    state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "BACKEND", tmp_path)
    path = lifecycle._passphrase("test")
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.read_text()
    assert lifecycle._passphrase("test").read_text() == first
    (tmp_path / ".pulumi/stacks/muster").mkdir(parents=True)
    (tmp_path / ".pulumi/stacks/muster/test.json").touch()
    path.unlink()
    with pytest.raises(lifecycle.StackError, match="passphrase of stack test is gone"):
        lifecycle._passphrase("test")


@pytest.mark.parametrize("text", [None, "a: [", "apiVersion: other/v9"])
def test_a_lab_without_pulumi_says_what_is_wrong_with_its_spec_and_starts_nothing(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "x.yaml"
    if text:
        spec.write_text(text)
    monkeypatch.setattr("sys.argv", ["lab", "up", "test", "--spec", str(spec)])
    assert by_hand.main() == 2
    assert f"lab: {spec}:" in capsys.readouterr().err
