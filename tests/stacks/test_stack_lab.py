"""A small lab, really stood up: made, unchanged, broken, mended, removed without remains."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from spec.document import read
from spec.folders import state
from spec.load import load
from spec.plan import derive
from stacks import lifecycle
from stacks.converge import converge
from stacks.lab import lab, machines
from stacks.lab.model import machines_folder, namespace

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts need root"),
]

ROOT = Path(__file__).parents[2]
PLAY = """\
- name: Small converge
  hosts: all
  gather_facts: false
  become: true
  tasks:
    - name: Write the node's name
      ansible.builtin.copy:
        content: "{{ muster_cluster }} {{ inventory_hostname }}\\n"
        dest: /etc/muster-test
        mode: "0644"
"""


@pytest.fixture
def stack() -> Iterator[str]:
    """The name of a stack that is removed afterwards, whatever came of it."""
    name = f"test-{secrets.token_hex(3)}"
    yield name
    lifecycle.destroy(name, lambda *_: None)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The least that keeps three copies: three service nodes and one GPU node."""
    text = read(ROOT / "clusters/lab-containers.yaml").data
    for group in text["nodes"]:
        group["count"] = {"control": 1, "storage": 2, "gpu": 1}[group["name"]]
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    return path


def ssh(stack: str, node: str, *command: str) -> str:
    config = state(stack) / "ssh/config"
    done = subprocess.run(
        ["ssh", "-F", str(config), "-o", "BatchMode=yes", node, *command],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def remains(stack: str) -> list[str]:
    """Everything on the host that has the stack's name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            groups = (path.parent / "cgroup").read_text()
            ended = (path.parent / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if ended:  # only the host's init has yet to take note of it
            continue
        if namespace(stack) in groups or (namespace(stack) in words and "pytest" not in words):
            found.append(f"process {path.parent.name}: {words}")
    found += [str(each) for each in Path("/run/netns").glob(f"{namespace(stack)}*")]
    found += [str(each) for each in Path("/sys/fs/cgroup").glob(f"*/{namespace(stack)}*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if stack in line]
    found += [str(state(stack))] if state(stack).exists() else []
    found += [str(each) for each in lifecycle.BACKEND.rglob("*") if stack in each.name]
    return found


@pytest.mark.soak
def test_up_preview_kill_refresh_up_destroy(state_home: Path, small: Path, stack: str, tmp_path: Path) -> None:
    (tmp_path / "play").mkdir()
    (tmp_path / "play/site.yml").write_text(PLAY)
    said: list[str] = []

    def say(text: str, keep: bool) -> None:
        said.append(text)

    lifecycle.configure(stack, "muster:playbook", str(tmp_path / "play/site.yml"))
    deployed = lifecycle.up(stack, small, say)
    assert deployed.nodes == ("control-0", "storage-0", "storage-1", "gpu-0")
    assert any("Write the node's name" in line for line in said), "progress of the converge run is shown"
    for node in deployed.nodes:
        assert ssh(stack, node, "cat", "/etc/muster-test") == f"lab-containers {node}"
        assert ssh(stack, node, "systemctl is-system-running --wait || systemctl --failed --no-legend") == "running"
    before = ssh(stack, "gpu-0", "cat", "/etc/machine-id")
    assert before != ssh(stack, "storage-0", "cat", "/etc/machine-id")

    assert lifecycle.preview(stack, small, say).none
    assert state_has_no_secret(stack)

    boot = machines.read(stack, "gpu-0")
    assert boot
    os.kill(boot.pid, signal.SIGKILL)
    assert lifecycle.refresh(stack, say).counts == {"same": 7, "delete": 1}
    changes = lifecycle.preview(stack, small, say)
    assert changes.counts == {"same": 6, "create": 1, "update": 1}
    lifecycle.up(stack, small, say)
    again = machines.read(stack, "gpu-0")
    assert again
    assert again.boot != boot.boot
    assert ssh(stack, "gpu-0", "cat", "/etc/machine-id") == before, "the machine comes back with its disk"
    assert lifecycle.preview(stack, small, say).none

    lifecycle.destroy(stack, say)
    assert remains(stack) == []


def state_has_no_secret(stack: str) -> bool:
    """Whether neither the keys nor the passphrase are anywhere in what the engine wrote."""
    written = "".join(path.read_text(errors="replace") for path in lifecycle.BACKEND.rglob("*") if path.is_file())
    keys = [state(stack) / "ssh/id_ed25519", *machines_folder(stack).glob("*/ssh_host_ed25519_key")]
    secret = [line for key in keys for line in key.read_text().splitlines()[1:-1]]
    secret.append((state(stack) / "engine/passphrase").read_text().strip())
    return not any(each in written for each in secret)


def test_a_start_that_is_killed_at_any_time_can_be_taken_up_again(state_home: Path, small: Path, stack: str) -> None:
    image = asyncio.run(lab.node_image(lambda _: None))
    start = [
        sys.executable,
        "-m",
        "stacks.lab",
        "up",
        stack,
        "--spec",
        str(small),
        "--without-vendor",
        "--image",
        image,
    ]
    for delay in (0.7, 1.0, 1.4, 1.9, 2.6, 3.5):
        begun = subprocess.Popen(start, cwd=ROOT, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        begun.kill()
        begun.wait()
    subprocess.run(start, cwd=ROOT, check=True, timeout=300)
    for node in ("control-0", "storage-0", "storage-1", "gpu-0"):
        assert ssh(stack, node, "hostname") == node
    asyncio.run(lab.down(stack))
    assert remains(stack) == []


def test_two_labs_with_the_same_addresses_stand_side_by_side(state_home: Path, small: Path, stack: str) -> None:
    plan = derive(load(small))
    images = asyncio.run(lab.built(plan, lambda _: None))
    other = f"{stack}-b"
    try:
        for each in (stack, other):
            asyncio.run(lab.up(each, small, plan, images, None, lambda _: None, only=["gpu-0"]))
        one, two = (ssh(each, "gpu-0", "cat", "/etc/machine-id") for each in (stack, other))
        assert one != two
        asyncio.run(lab.down(other))
        assert remains(other) == []
        assert ssh(stack, "gpu-0", "hostname") == "gpu-0"
    finally:
        asyncio.run(lab.down(other))


def test_a_check_run_tells_the_difference_and_changes_nothing(
    state_home: Path, small: Path, stack: str, tmp_path: Path
) -> None:
    plan = derive(load(small))
    images = asyncio.run(lab.built(plan, lambda _: None))
    deployed = asyncio.run(lab.up(stack, small, plan, images, None, lambda _: None))
    playbook = tmp_path / "site.yml"
    playbook.write_text(PLAY)

    def say(text: str, keep: bool) -> None: ...

    assert converge(plan, deployed, say, playbook=playbook).changed_tasks == 4
    assert converge(plan, deployed, say, playbook=playbook).changed_tasks == 0
    ssh(stack, "storage-1", "sudo -n sh -c 'echo other >/etc/muster-test'")
    drift = converge(plan, deployed, say, playbook=playbook, check=True)
    assert [(each.host, "other" in each.text) for each in drift.changes] == [("storage-1", True)]
    assert ssh(stack, "storage-1", "cat", "/etc/muster-test") == "other"
    os.kill(json.loads((machines_folder(stack) / "gpu-0/boot.json").read_text())["pid"], signal.SIGKILL)
    mended = converge(plan, deployed, say, playbook=playbook)
    assert {each.name: (each.holds, each.unreachable) for each in mended.hosts} == {
        "control-0": (True, 0),
        "gpu-0": (False, 1),
        "storage-0": (True, 0),
        "storage-1": (True, 0),
    }
    files = [each.name for each in (deployed.state / "ansible").rglob("*") if each.is_file()]
    assert set(files) <= {"hosts.json", "lock", "stdout", "stderr"}, files
