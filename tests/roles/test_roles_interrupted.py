"""A run that was cut off leaves none of its notifications and none of its promises: the next one finds what is open."""

from typing import Any

import pytest
from plan_inventories import ROLES, evaluate, read, variables


def named(path: str, name: str) -> dict[str, Any]:
    (found,) = (task for task in read(ROLES / path) if task["name"] == name)
    return dict(found)


def runs(task: dict[str, Any], **results: Any) -> bool:
    """Whether a task's condition holds on a converged GPU node."""
    return bool(evaluate(f"({task['when']}) | bool", variables("lab", "gpu-0", **results)))


@pytest.mark.parametrize(
    ("differs", "unproved", "applied"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_a_table_stays_only_once_a_login_has_proved_it(differs: bool, unproved: bool, applied: bool) -> None:
    """The timer of a run that was cut off would take back what is right now, after this run said that it is."""
    found = {"firewall_found": {"changed": differs}, "firewall_unproved": {"changed": unproved}}
    assert runs(named("firewall/tasks/main.yml", "Put the new table into force"), **found) is applied


def test_the_way_back_is_to_the_last_table_that_was_proved() -> None:
    back = named("firewall/tasks/apply.yml", "Write down how to go back")
    assert runs(back, firewall_unproved={"stdout": "inactive"})
    assert not runs(back, firewall_unproved={"stdout": "active"})
    names = [task["name"] for task in read(ROLES / "firewall/tasks/apply.yml")]
    assert names.index("Stop the timer of a run that was cut off") < names.index("Set the timer that goes back")


def test_the_timer_is_looked_for_before_the_table_is_compared() -> None:
    """The other way round it could run out in between, and take back what was just found right."""
    names = [task["name"] for task in read(ROLES / "firewall/tasks/main.yml")]
    assert names.index("Look for a table that no login has proved") < names.index("Compare the table with it")


UNREAD = [
    ("base/tasks/ssh.yml", "Find configuration that sshd has not read", "/etc/ssh/sshd_config", "/run/sshd.pid"),
    ("chrony/tasks/main.yml", "Find configuration that chronyd has not read", "/etc/chrony/chrony.conf",
     "/run/chrony/chronyd.pid"),
    ("slurm/tasks/munge.yml", "Find a key that munge has not read", "/etc/munge/munge.key", "/run/munge/munged.pid"),
    ("slurm/tasks/configure.yml", "Find configuration that slurmctld has not read", "/etc/slurm/slurm.conf",
     "/run/slurmctld.pid"),
    ("slurm/tasks/configure.yml", "Find configuration that slurmd has not read", "/etc/slurm", "/run/slurmd.pid"),
]  # fmt: skip
"""What daemons read at their start only, and where the role finds whether they have."""


@pytest.mark.parametrize(("path", "name", "file", "since"), UNREAD, ids=[each[1] for each in UNREAD])
def test_a_daemon_that_has_not_read_what_is_written_starts_anew(path: str, name: str, file: str, since: str) -> None:
    task = named(path, name)
    command = task["ansible.builtin.command"]
    words = command.split() if isinstance(command, str) else command["argv"]
    assert words[0] == "find"
    assert file in words
    assert words[-2:] == ["-newer", since]
    assert task["changed_when"] == f"{task['register']}.stdout | length > 0"
    assert task["notify"]
    handlers = {each["name"] for each in read(ROLES / path.split("/")[0] / "handlers/main.yml")}
    assert {task["notify"]} <= handlers if isinstance(task["notify"], str) else set(task["notify"]) <= handlers


def test_pid_files_of_slurm_are_where_its_configuration_puts_them() -> None:
    text = (ROLES / "slurm/templates/slurm.conf.j2").read_text()
    assert "SlurmctldPidFile=/run/slurmctld.pid" in text
    assert "SlurmdPidFile=/run/slurmd.pid" in text


def test_an_initramfs_older_than_what_it_shall_keep_out_is_made_anew() -> None:
    task = named("base/tasks/kernel.yml", "Find an initramfs that was made since")
    assert task["ansible.builtin.command"]["argv"][-1] == "/etc/modprobe.d/muster-blacklist.conf"
    assert task["changed_when"] == "base_initramfs_made.stdout | length == 0"
    assert task["notify"] == "Rebuild the initramfs"
    assert runs(task, base_capabilities=["kernel"], base_initramfs=True, base_blacklisted_modules=["nouveau"])
    assert not runs(task, base_capabilities=[], base_initramfs=True, base_blacklisted_modules=["nouveau"])
    assert not runs(task, base_capabilities=["kernel"], base_initramfs=False, base_blacklisted_modules=["nouveau"])
