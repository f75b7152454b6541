"""Habits that keep check mode honest: what a task cannot tell in check mode, nobody sees as drift."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from plan_inventories import OWN, ROLES

READERS = ("ansible.builtin.command", "ansible.builtin.shell", "ansible.builtin.raw", "ansible.builtin.script")
OUTSIDE_CHECK_MODE = {Path("firewall/tasks/apply.yml")}
"""Files of tasks that are included outside check mode only."""

FILES = sorted(path for role in (*OWN, "packages") for path in (ROLES / role).glob("*/*.yml"))


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    content = yaml.safe_load(path.read_text()) or []
    for each in content if isinstance(content, list) else []:
        yield each
        yield from (inner for key in ("block", "rescue", "always") for inner in each.get(key, []))


@pytest.mark.parametrize("path", [each for each in FILES if each.parent.name == "tasks"], ids=str)
def test_a_command_reads_in_check_mode_too_and_says_what_counts_as_a_change(path: Path) -> None:
    for task in tasks(path):
        if not set(READERS) & set(task):
            continue
        assert "changed_when" in task, task["name"]
        if path.relative_to(ROLES) not in OUTSIDE_CHECK_MODE:
            assert task.get("check_mode") is False, task["name"]


def test_what_only_runs_outside_check_mode_is_included_outside_check_mode() -> None:
    for path in OUTSIDE_CHECK_MODE:
        including = [
            task
            for each in (ROLES / path).parent.glob("*.yml")
            for task in tasks(each)
            if path.name in str(task.get("ansible.builtin.include_tasks"))
        ]
        assert including
        assert all("not ansible_check_mode" in task["when"] for task in including)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_task_ignores_errors_or_uses_a_shell(path: Path) -> None:
    for task in tasks(path):
        assert "ignore_errors" not in task, task["name"]
        assert "ansible.builtin.shell" not in task, task["name"]


EVERY = sorted(ROLES.glob("*/tasks/*.yml"))


@pytest.mark.parametrize("path", EVERY, ids=str)
def test_no_hidden_command_is_left_to_check_mode(path: Path) -> None:
    """Check mode skips a command, and `no_log` hides that it did: nobody would know that nobody looked."""
    for task in tasks(path):
        if set(READERS) & set(task) and task.get("no_log"):
            assert task.get("check_mode") is False or "not ansible_check_mode" in str(task["when"]), task["name"]


def test_a_file_that_gets_a_secret_is_closed_before_the_secret_is_in_it() -> None:
    """Modules close what they write by themselves; a command that writes a file does not."""
    for path in EVERY:
        closed: set[str] = set()
        for task in tasks(path):
            if copied := task.get("ansible.builtin.copy"):
                closed |= {copied["dest"]} if copied["mode"] == "0600" else set()
            words = str(task.get("ansible.builtin.command") or {})
            if "'-o', " in words:
                assert words.partition("'-o', ")[2].split("]")[0] in {each.strip("{} ") for each in closed}, task[
                    "name"
                ]


def test_everything_is_refused_before_anything_is_changed() -> None:
    first, *others = yaml.safe_load((ROLES / "site.yml").read_text())
    examined = [task["ansible.builtin.import_role"] for task in first["tasks"]]
    assert all(each["tasks_from"] == "preflight" for each in examined)
    assert first["any_errors_fatal"] is True
    assert first["tags"] == ["always"]
    assert "become" not in first
    assert {each["name"] for each in examined} >= set(OWN)
    assert all(play["force_handlers"] for play in others)


def test_every_storage_host_that_was_restarted_is_waited_for() -> None:
    """Not monitors alone: OSDs of two hosts that are down at once are more than placement groups go on with."""
    running, restart, wait = tasks(ROLES / "ceph/tasks/restart.yml")
    words = restart["ansible.builtin.command"]["argv"]
    assert set(words[2:]) == {each for each in running["ansible.builtin.command"]["argv"] if each.endswith("@*")}
    assert wait["when"] == f"{running['register']}.stdout | length > 0"
    assert any("num_up_osds" in each for each in wait["until"])
