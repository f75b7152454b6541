"""Nobody is locked out of a host that exists: what a role is about to close is not what Ansible comes by."""

import pytest
from plan_inventories import ROLES, clustered, evaluate, read, render, variables

ADDRESS = clustered("lab")["all"]["vars"]["muster_hosts"]["gpu-0"]["management"]


@pytest.mark.parametrize(
    ("connection", "allowed"),
    [
        (f"10.77.1.1 50222 {ADDRESS} 22", True),
        ("203.0.113.9 50222 198.51.100.7 22", False),
        ("fe80::1 50222 fe80::2 22", False),
        ("", True),  # not by SSH
    ],
)
def test_sshd_does_not_leave_the_address_that_ansible_comes_by(connection: str, allowed: bool) -> None:
    tasks = {task["name"]: task for task in read(ROLES / "base/tasks/ssh.yml")}
    refusal = tasks["Refuse to make sshd leave the address that Ansible comes by"]
    known = variables("lab", "gpu-0", base_connection={"stdout": connection}, **refusal["vars"])
    assert evaluate(refusal["ansible.builtin.assert"]["that"], known) is allowed
    assert " · " in refusal["ansible.builtin.assert"]["fail_msg"]
    assert list(tasks).index(refusal["name"]) < list(tasks).index("Restrict sshd")
    assert tasks["Read the address that this login came to"]["become"] is False


def test_a_locked_password_keeps_no_key_out() -> None:
    """The automation user's password is locked: without PAM sshd takes that for a locked account."""
    text = render(ROLES / "base/templates/sshd.conf.j2", variables("lab", "gpu-0"))
    assert [line for line in text.splitlines() if line.startswith("UsePAM")] == ["UsePAM yes"]


@pytest.mark.parametrize("user", ["muster", "first.last"])
def test_sudo_reads_what_lets_the_automation_user_work(user: str) -> None:
    """Files in sudoers.d whose names have a dot in them are left out, without a word."""
    (task,) = (each for each in read(ROLES / "base/tasks/users.yml") if "sudoers" in str(each))
    name = task["ansible.builtin.template"]["dest"].rpartition("/")[2].strip("{} ")
    assert evaluate(name, variables("lab", "gpu-0", base_automation_user=user)) == user.replace(".", "_")
