"""A virtual machine of the lab, really booted: reached, switched off, started again with its disk, removed."""

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec.load import load
from spec.plan import derive
from stacks.lab import access, lab, machines, model, network

pytestmark = [
    pytest.mark.lab,
    pytest.mark.vm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and taps need root"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stack() -> Iterator[str]:
    """The name of a stack that is removed afterwards, whatever came of it."""
    name = f"test-{secrets.token_hex(3)}"
    yield name
    asyncio.run(lab.down(name))


def remains(stack: str) -> list[str]:
    """Everything on the host that has the stack's name."""
    found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if stack in line]
    found += [str(each) for each in Path("/run/netns").glob(f"{model.namespace(stack)}*")]
    found += [str(each) for each in Path("/sys/fs/cgroup").glob(f"*/{model.namespace(stack)}*")]
    found += [str(model.machines_folder(stack).parent)] if model.machines_folder(stack).parent.exists() else []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"/{stack}/" in words:
            found.append(f"process {path.parent.name}: {words}")
    return found


def test_it_boots_answers_comes_back_after_a_power_cut_and_leaves_nothing(state_home: Path, stack: str) -> None:
    plan = derive(load(ROOT / "clusters/lab.yaml"))
    images = asyncio.run(lab.built(plan, lambda _: None))
    vendor = asyncio.run(lab.vendor_repository(lambda _: None))
    made = model.machine(stack, plan.node("gpu-0"), images[plan.node("gpu-0").machine], vendor)

    def ssh(command: str) -> str:
        argv = ["ssh", "-F", str(access.config(stack)), "-o", "BatchMode=yes", "gpu-0", command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    asyncio.run(network.create(model.network(stack, plan)))
    first = asyncio.run(machines.ensure(made))
    assert ssh("hostname") == "gpu-0"
    links = {line.split()[0]: line.split()[2] for line in ssh("ip -brief link").splitlines()}
    assert {port.name: port.mac for port in made.ports}.items() <= links.items()
    assert ssh("ls /srv/muster/vendor/InRelease; findmnt -no OPTIONS /srv/muster/vendor").startswith("/srv")
    assert asyncio.run(machines.ensure(made)) == first, "a machine that runs as declared is left alone"
    ssh("echo kept | sudo -n tee /root/kept && sudo -n sync")
    identity = ssh("cat /etc/machine-id")

    os.kill(first.pid, signal.SIGKILL)
    while machines.read(stack, "gpu-0"):
        time.sleep(0.1)
    again = asyncio.run(machines.ensure(made))
    assert again.boot != first.boot
    assert again.creation == first.creation
    assert (ssh("sudo -n cat /root/kept"), ssh("cat /etc/machine-id")) == ("kept", identity)

    asyncio.run(machines.remove(stack, "gpu-0"))
    assert machines.read(stack, "gpu-0") is None
    assert asyncio.run(network.stands(model.network(stack, plan))), "bridges keep their MTU without a port"
    asyncio.run(lab.down(stack))
    assert remains(stack) == []
