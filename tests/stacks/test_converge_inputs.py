"""What a converge run works from, and how it ends where it cannot begin."""

import asyncio
from pathlib import Path

import pytest

from spec.load import dump
from spec.plan import ClusterPlan, derive
from stacks.converge import ConvergeError, Request, converge, converge_apart, hosts, inputs_digest
from stacks.lab import lab


def test_hosts_are_reached_by_name_through_the_stacks_ssh_config(
    state_home: Path, plan: ClusterPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("images.vendor.key", lambda of: f"the key of {of}")  # whether or not it is built here
    deployed = lab.deployment("test", tmp_path / "x.yaml", plan, {})
    found = hosts(plan, deployed)["all"]
    assert found["hosts"].keys() == {node.name for node in plan.nodes}
    assert all(each["ansible_host"] == name for name, each in found["hosts"].items())
    assert found["vars"]["ansible_ssh_common_args"] == f"-F {deployed.ssh_config}"
    assert found["vars"]["muster_pins"]["packages"]["all"]
    assert Path(found["vars"]["muster_state"]).is_relative_to(deployed.state)


def test_the_digest_follows_roles_and_plan_and_nothing_else(plan: ClusterPlan, tmp_path: Path) -> None:
    (tmp_path / "base/tasks").mkdir(parents=True)
    (tmp_path / "base/tasks/main.yml").write_text("[]\n")
    first = inputs_digest(plan, tmp_path)
    (tmp_path / "base/__pycache__").mkdir()
    (tmp_path / "base/__pycache__/x.pyc").write_text("x")
    assert inputs_digest(plan, tmp_path) == first
    (tmp_path / "base/tasks/main.yml").rename(tmp_path / "base/tasks/other.yml")
    renamed = inputs_digest(plan, tmp_path)
    (tmp_path / "base/tasks/other.yml").write_text("[ ]\n")
    edited = inputs_digest(plan, tmp_path)
    other = derive(plan.spec.model_copy(update={"pool": plan.spec.pool.model_copy(update={"queue": "other"})}))
    assert len({first, renamed, edited, inputs_digest(other, tmp_path)}) == 4


def test_a_run_without_its_playbook_or_on_a_node_that_is_none_is_an_error(
    state_home: Path, plan: ClusterPlan, tmp_path: Path
) -> None:
    deployed = lab.deployment("test", tmp_path / "x.yaml", plan, {})

    def say(text: str, keep: bool) -> None: ...

    with pytest.raises(ConvergeError, match="no playbook"):
        converge(plan, deployed, say, playbook=tmp_path / "none.yml")
    with pytest.raises(LookupError, match="no node 'gpu-99'"):
        converge(plan, deployed, say, limit=["gpu-99"])


def test_a_run_apart_refuses_what_was_edited_since_it_was_planned(
    state_home: Path, plan: ClusterPlan, tmp_path: Path
) -> None:
    spec = tmp_path / "x.yaml"
    spec.write_text(dump(plan.spec))
    (tmp_path / "site.yml").write_text("[]\n")
    request = Request(
        deployment=lab.deployment("test", spec, plan, {}), playbook=tmp_path / "site.yml", inputs="of another time"
    )
    with pytest.raises(ConvergeError, match="edited since this run began"):
        asyncio.run(converge_apart(request, lambda *_: None))


PLAY = """\
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - {name: once, ansible.builtin.command: "true"}
    - {name: each, ansible.builtin.command: "true {{ item }}", loop: [a, b], when: item == 'b'}
    - {name: never, ansible.builtin.command: "true", when: false}
    - {name: none, ansible.builtin.command: "true", loop: []}
    - {name: steers, ansible.builtin.meta: flush_handlers, when: false}
    - {name: goes on, ansible.builtin.meta: end_host, when: false}
    - {name: asked, ansible.builtin.command: "true", check_mode: false, changed_when: false}
    - {name: differs, ansible.builtin.copy: {content: x, dest: "PLACE/x"}, notify: follows}
    - {name: handles, ansible.builtin.meta: flush_handlers}
  handlers:
    - {name: follows, ansible.builtin.command: "true"}
"""


def test_a_check_run_tells_what_it_did_not_look_at(
    state_home: Path, plan: ClusterPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ansible itself, on this machine: what a task that check mode skips says is Ansible's own."""
    monkeypatch.setattr("images.vendor.key", lambda of: of)
    (tmp_path / "site.yml").write_text(PLAY.replace("PLACE", str(tmp_path)))
    deployed = lab.deployment("test", tmp_path / "x.yaml", plan, {})
    done = converge(plan, deployed, lambda *_: None, check=True, limit=["gpu-0"], playbook=tmp_path / "site.yml")
    assert done.holds
    assert [note.task for note in done.unknown] == ["once", "each"]
    assert [note.task for note in done.changes] == ["differs"]
    assert {note.host for note in done.unknown} == {"gpu-0"}
