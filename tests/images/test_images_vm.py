"""The virtual machine's disk boots into the machine that its identity disk makes it."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.node import vm

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(1800)]

PATIENCE_S = 600
"""How long the machine may take to answer: a minute on an idle computer without KVM, several on a busy one."""


class Vm:
    """A running virtual machine and how to log in."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.ssh = [
            *("ssh", "-F", "none", "-i", folder / "user", "-p", f"{port}", "-o", "BatchMode=yes"),
            *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes"),
            *("-o", "ConnectTimeout=20", "muster@127.0.0.1"),
        ]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a shell command in it."""
        return subprocess.run([*self.ssh, command], capture_output=True, text=True, timeout=300)

    def wait(self) -> None:
        """Waits until it answers; says what its console said where it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while self.run("true").returncode != 0:
            assert time.monotonic() < deadline, (self.folder / "console").read_text(errors="replace")[-3000:]
            time.sleep(3)


def make_identity(folder: Path, port: int) -> Path:
    """A disk with a host name, a host key, a user's key and a network: what a stack hands in."""
    files = folder / "identity"
    for name, comment in (("user", "test"), ("ssh_host_ed25519_key", "gpu-7")):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", folder / name], check=True)
    host_key = (folder / "ssh_host_ed25519_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    contents = {
        "etc/hostname": "gpu-7\n",
        "etc/hosts": "127.0.0.1\tlocalhost gpu-7\n",
        "etc/ssh/ssh_host_ed25519_key": (folder / "ssh_host_ed25519_key").read_text(),
        "etc/ssh/ssh_host_ed25519_key.pub": host_key,
        "etc/systemd/network/10-mgmt.network": "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n",
        "home/muster/.ssh/authorized_keys": (folder / "user.pub").read_text(),
    }
    for path, text in contents.items():
        place = files / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (files / "etc/ssh/ssh_host_ed25519_key").chmod(0o600)
    for place in (files / "home/muster", *(files / "home/muster").rglob("*")):
        os.chown(place, 900, 900)
    (files / "home/muster/.ssh").chmod(0o700)
    wants = files / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    disk = folder / "identity.img"
    subprocess.run(["mkfs.ext4", "-q", "-d", files, "-L", "muster-identity", disk, "16M"], check=True)
    return disk


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    """A machine of 12 GiB disk, started without KVM, that answers."""
    folder = tmp_path_factory.mktemp("vm")
    base = vm.disk(print)
    own = folder / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, own, "12G"], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    identity = make_identity(folder, port)
    process = subprocess.Popen(
        [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"),
            *("-nodefaults", "-display", "none", "-serial", f"file:{folder / 'console'}"),
            *("-kernel", vm.kernel(), "-initrd", vm.initrd()),
            *("-append", "root=/dev/vda rw console=ttyS0 muster.identity"),
            *("-drive", f"file={own},if=virtio", "-drive", f"file={identity},if=virtio,format=raw,readonly=on"),
            *("-netdev", f"user,id=mgmt,hostfwd=tcp:127.0.0.1:{port}-:22"),
            *("-device", "virtio-net-pci,netdev=mgmt,romfile="),
        ]
    )
    try:
        running = Vm(folder, port)
        running.wait()
        yield running
    finally:
        process.kill()
        process.wait()


def test_it_is_the_machine_of_its_identity_disk(machine):
    assert machine.run("hostname").stdout == "gpu-7\n"
    assert machine.run("sudo -n id -u").stdout == "0\n"
    assert len(machine.run("cat /etc/machine-id").stdout.strip()) == 32


def test_it_runs_without_a_failed_unit(machine):
    assert machine.run("systemctl is-system-running --wait").stdout == "running\n"
    assert machine.run("systemctl --failed --no-legend").stdout == ""


def test_its_root_has_grown_to_the_size_of_its_disk(machine):
    gib = int(machine.run("df --block-size=1G --output=size / | tail -1").stdout)
    assert gib >= 11


def test_its_kernel_is_its_own_and_has_what_containers_lack(machine):
    release = machine.run("uname -r").stdout.strip()
    assert (vm.folder() / "packages.json").read_text().count(f'"linux-image-{release}"') == 1
    loaded = machine.run("sudo -n modprobe -a rdma_rxe bonding 8021q sch_netem ceph dm_crypt && echo loaded")
    assert loaded.stdout == "loaded\n", loaded.stderr
    port = machine.run("ip -o route show default").stdout.split(" dev ")[1].split()[0]
    link = machine.run(f"sudo -n rdma link add rxe0 type rxe netdev {port}; rdma link")
    assert "rxe0/1 state ACTIVE" in link.stdout
