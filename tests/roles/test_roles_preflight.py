"""Contradictions are refused with what, where and what to do; a plan's own inventory never is."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from plan_inventories import OWN, ROLES, clustered

Variables = dict[str, Any]


def _host() -> Variables:
    return deepcopy(clustered("lab-containers")["all"]["hosts"]["gpu-0"])


def _interfaces(**changes: Any) -> Variables:
    """The host's interfaces, with changes to the storage plane's."""
    found = _host()["muster_interfaces"]
    return {"network_interfaces": [each | changes if each["plane"] == "storage" else each for each in found]}


def _rules(**changes: Any) -> Variables:
    """The host's rules, with changes to that of administration."""
    found = _host()["muster_firewall"]
    return {"firewall_rules": [each | changes if each["purpose"] == "administration" else each for each in found]}


REFUSED: list[tuple[str, Variables, str]] = [
    ("base", {"base_hostname": "stranger"}, "stranger is not in base_hosts"),
    ("base", {"base_automation_user": "root", "ansible_user": "root"}, "base_automation_user is root"),
    ("base", {"base_login_users": ["root"]}, "root is in base_login_users"),
    ("base", {"ansible_user": "somebody"}, "Ansible logs in as somebody, who could not log in again"),
    ("base", {"base_job_ports": "50000"}, "write first-last"),
    ("base", {"base_held": ["chrony"], "base_pins": {"chrony": "1"}}, "chrony is pinned and held"),
    ("base", {"base_hosts": {"gpu-0": {"management": "10.0.0.1", "storage": "10.0.0.1"}}}, "share an address"),
    ("network", {"network_interfaces": []}, "not exactly one interface on the plane management"),
    ("network", _interfaces(name="mgmt0"), "is named twice"),
    ("network", _interfaces(address="10.77.1.14/24"), "have the same address"),
    ("network", _interfaces(name="storage-plane"), "longer than 10 characters"),
    ("network", _interfaces(links=["a", "b"], bond="802.3ad"), "cannot bond"),
    ("network", _interfaces(links=["a"], bond="802.3ad"), "one link only"),
    ("network", _interfaces(links=["a", "b"], bond="balance-rr"), "has no mode"),
    ("network", _interfaces(vlan=20), "this kind of machine has none"),
    ("chrony", {"chrony_server": "nobody"}, "the time server nobody is not in the inventory"),
    ("chrony", {"chrony_sources": []}, "follows nobody and serves nobody"),
    ("chrony", {"chrony_sources": ["10.77.1.14"]}, "follows itself"),
    ("chrony", {"chrony_min_sources": 2}, "the clock would never be set"),
    ("chrony", {"chrony_server": "gpu-0", "chrony_allow": []}, "answers nobody"),
    ("chrony", {"chrony_poll": {"shortest": 9, "longest": 4}}, "shortest is above"),
    ("firewall", {"firewall_rules": []}, "this would lock Ansible out"),
    ("firewall", _rules(ports=["2222"]), "this would lock Ansible out"),
    ("firewall", _rules(interface="rail0"), "this would lock Ansible out"),
    ("firewall", _rules(protocol="udp", ports=[]), "tcp or udp without ports: administration"),
    ("firewall", _rules(protocol="icmp"), "ports of a protocol that has none: administration"),
    ("firewall", _rules(interface="eth9"), "interfaces that the node has not: eth9"),
    ("firewall", _rules(sources=[]), "rules without a source: administration"),
    ("rdma", {"rdma_links": ["rail0"]}, "this kind of machine has none"),
    ("rdma", {"rdma_lossless": {"dscp": 64, "priority": 3}}, "DSCPs run from 0 to 63"),
    ("rdma", {"rdma_lossless": {"dscp": 26, "priority": 8}}, "priorities run from 0 to 7"),
    ("rdma", {"rdma_lossless": {"dscp": 26}}, "not both dscp and priority"),
    ("rdma", {"rdma_soft": True, "rdma_lossless": {"dscp": 26, "priority": 3}}, "no priorities to pause"),
    ("gpu", {"gpu_packages": {}}, "pins nothing for them"),
    ("gpu", {"gpu_packages": {"libnccl2": ""}}, "a package without a version"),
    (
        "gpu",
        {"gpu_packages": {"libnvidia-compute": "580.95.05-1", "nvidia-fabricmanager": "580.82.07-1"}},
        "driver and fabric manager have different versions",
    ),
    ("gpu", {"gpu_repository_key": ""}, "gpu_repository has no key"),
    ("gpu", {"gpu_simulated": "[gpu]", "gpu_repository": "https://a.b/"}, "a machine outside the lab"),
]


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each host was told: each contradiction is one, and so is each node of the lab, as its plan has it."""
    folder = tmp_path_factory.mktemp("preflight")
    plan = deepcopy(clustered("lab-containers")["all"])
    cases = {f"case-{i}": (role, changes) for i, (role, changes, _) in enumerate(REFUSED)}
    for name, (role, changes) in cases.items():
        own = {"base_hostname": "gpu-0", "chrony_address": "10.77.1.14", "ansible_user": "muster"}
        plan["hosts"][name] = _host() | own | changes
        if changes.get("chrony_server") == "gpu-0":
            plan["hosts"][name]["chrony_server"] = name
        plan["hosts"][name]["examined"] = [role]
    return _run(folder, {"all": plan})


def _run(folder: Path, inventory: Variables) -> dict[str, str]:
    """The last thing that Ansible said of each host, on one line."""
    (folder / "hosts.json").write_text(json.dumps(inventory))
    tasks = [
        {
            "name": role,
            "ansible.builtin.import_role": {"name": role, "tasks_from": "preflight"},
            "when": f"'{role}' in examined | default(['{role}'])",
        }
        for role in OWN
    ]
    play = {"name": "Preflight", "hosts": "all", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    (folder / "group_vars").symlink_to(ROLES / "group_vars")
    settings = {
        "ANSIBLE_CONFIG": str(ROLES / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ROLES),
        "ANSIBLE_STDOUT_CALLBACK": "oneline",
        "ANSIBLE_FORKS": "2",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    run = subprocess.run(
        [program, "-i", folder / "hosts.json", folder / "play.yml"],
        env=os.environ | settings, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    said = dict(line.split(" | ", 1) for line in run.stdout.splitlines() if " | " in line)
    assert said, run.stderr
    return said


@pytest.mark.parametrize(
    ("number", "words"), [(i, words) for i, (_, _, words) in enumerate(REFUSED)], ids=[words for _, _, words in REFUSED]
)
def test_a_contradiction_is_refused_and_says_what_to_do(told: dict[str, str], number: int, words: str) -> None:
    state, _, result = told[f"case-{number}"].partition(" => ")
    assert state == "FAILED!"
    message = json.loads(result)["msg"]
    assert words in message
    assert all(" · " in line for line in message.splitlines())


def test_nodes_of_a_plan_are_never_refused(told: dict[str, str]) -> None:
    for name in clustered("lab")["all"]["hosts"]:
        assert told[name].startswith("SUCCESS"), told[name]
