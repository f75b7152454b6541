"""The node image and the vendor repository together, as a lab node has them: built, and used by its own apt."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import node, vendor
from images.vendor.gpus import STATE_FILE, simulated_gpus
from policies.pins import load_pins
from spec.schema import Gpus

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

PINNED = "580.95.05"
OTHER = "580.82.07"
DRIVER = [f"nvidia-driver-cuda={PINNED}-1", f"nvidia-kernel-open-dkms={PINNED}-1", f"nvidia-driver-pinning-{PINNED}"]
GPUS = Gpus(model="NVIDIA H100 80GB HBM3", count=8, memory_gib=80, nvlinks=18)


@pytest.fixture(scope="module")
def root() -> Path:
    """The image's root filesystem."""
    return node.build(print)


class Machine:
    """A root of its own over the image, entered without booting it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in it."""
        return subprocess.run(
            ["chroot", str(self.place), *command],
            capture_output=True, text=True, timeout=300,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip

    def install(self, *packages: str) -> subprocess.CompletedProcess[str]:
        """Installs packages with apt, and only those: nothing may be taken away or lowered for them."""
        return self.run("apt-get", "install", "--yes", "--no-install-recommends", *packages)


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Iterator[Machine]:
    """A machine that knows the vendor repository and nothing else."""
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    place = tmp_path / "root"
    layers = f"lowerdir={root},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, place], check=True)
    try:
        mounted = place / "srv/muster/vendor"
        mounted.mkdir(parents=True)
        subprocess.run(["mount", "--bind", vendor.build(print), mounted], check=True)
        (place / "dev/null").exists() or subprocess.run(["mknod", "-m", "666", place / "dev/null", "c", "1", "3"])
        source = "deb [signed-by=/srv/muster/vendor/vendor.asc] file:/srv/muster/vendor ./\n"
        (place / "etc/apt/sources.list.d/muster-vendor.list").write_text(source)
        entered = Machine(place)
        updated = entered.run("apt-get", "update")
        assert updated.returncode == 0, updated.stderr
        assert "W:" not in updated.stderr
        yield entered
    finally:
        subprocess.run(["umount", "--recursive", place], check=True)


def test_the_image_has_no_identity_and_no_traces_of_its_build(root):
    assert (root / "etc/machine-id").read_bytes() == b""
    assert not list((root / "etc/ssh").glob("ssh_host_*"))
    assert not list((root / "etc/munge").glob("*.key"))
    assert not [each for each in (root / "var/log").rglob("*") if each.is_file()]
    assert not list((root / "var/cache/apt/archives").glob("*.deb"))
    assert [each.name for each in (root / "var/lib/apt/lists").iterdir() if each.is_file()] == []
    assert (root / "etc/resolv.conf").read_text() == ""
    for account in (root / "etc/shadow").read_text().splitlines():
        assert account.split(":")[1][0] in "*!", account


def test_packages_json_is_what_dpkg_says(root):
    found = node.packages(node.digest())
    listing = Machine(root).run("dpkg-query", "--show", "--showformat=${Package} ${Version}\n").stdout
    assert found == dict(line.split() for line in listing.splitlines())
    assert json.loads((root.parent / "packages.json").read_text()) == found


def test_the_images_versions_are_the_pinned_ones(root):
    have = node.packages(node.digest())
    pins = load_pins("lab").packages
    simulated = {each.name for each in vendor.recipe()}
    wanted = {name: version for group in pins.values() for name, version in group.items() if name not in simulated}
    assert wanted
    assert {name: have.get(name) for name in wanted} == wanted


def test_the_automation_user_can_do_everything_and_has_no_password(root):
    machine = Machine(root)
    assert machine.run("id", "muster").stdout.startswith("uid=900(muster)")
    assert machine.run("passwd", "--status", "muster").stdout.split()[1] == "L"
    assert machine.run("visudo", "--check").returncode == 0
    assert "NOPASSWD: ALL" in machine.run("sudo", "-l", "-U", "muster").stdout
    assert not (root / "home/muster/.ssh").exists()


def test_only_what_a_bare_machine_needs_starts(root):
    wanted = sorted(each.name for each in (root / "etc/systemd/system").glob("*.wants/*"))
    assert wanted == ["getty@tty1.service", "ssh.service", "systemd-pstore.service"]
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer", "nvmf-autoconnect.service", "console-getty.service"):
        assert (root / "etc/systemd/system" / unit).readlink() == Path("/dev/null")


def test_the_pinned_driver_installs_without_a_mirror_and_shows_the_gpus(machine):
    installed = machine.install(*DRIVER, f"nvidia-fabricmanager={PINNED}-1", "libnccl2", "cuda-toolkit-13-0")
    assert installed.returncode == 0, installed.stderr
    state = machine.place / STATE_FILE.lstrip("/")
    state.parent.mkdir()
    state.write_text(vendor_gpus())
    listed = machine.run("nvidia-smi", "-L")
    assert len(re.findall(r"^GPU \d: NVIDIA H100 80GB HBM3 \(UUID: GPU-[0-9a-f-]{36}\)$", listed.stdout, re.M)) == 8
    assert "simulated" in listed.stderr
    asked = machine.run("nvidia-smi", "--query-gpu=index,driver_version,memory.total", "--format=csv,noheader")
    assert asked.stdout.splitlines()[7] == f"7, {PINNED}, 81559 MiB"
    assert machine.run("nv-fabricmanager", "--check").returncode == 0


def test_the_drivers_device_files_are_plain_files_and_never_replace_real_ones(machine):
    assert machine.install(*DRIVER).returncode == 0
    state = machine.place / STATE_FILE.lstrip("/")
    state.parent.mkdir()
    state.write_text(vendor_gpus())
    made = machine.place / "dev/nvidia-nvswitchctl"
    assert machine.run("/usr/libexec/muster/nvidia-simulated").returncode == 0
    assert "simulated" in made.read_text()
    assert not list((machine.place / "dev").glob("nvidia[0-9]*"))
    made.unlink()
    os.mknod(made, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    refused = machine.run("/usr/libexec/muster/nvidia-simulated")
    assert refused.returncode == 1
    assert "is a real device" in refused.stderr


def test_parts_of_two_drivers_do_not_install_together(machine):
    refused = machine.install(f"nvidia-driver-cuda={PINNED}-1", f"libnvidia-ml1={OTHER}-1")
    assert refused.returncode == 100
    assert "unmet dependencies" in refused.stderr + refused.stdout
    assert machine.run("dpkg-query", "--show", "nvidia-driver-cuda").returncode != 0


def test_a_pinned_driver_is_neither_upgraded_nor_lowered(machine):
    assert machine.install(f"nvidia-driver-pinning-{OTHER}").returncode == 0
    policy = machine.run("apt-cache", "policy", "libnvidia-ml1").stdout
    assert f"Candidate: {OTHER}-1" in policy
    assert machine.install("nvidia-driver-cuda", "nvidia-kernel-open-dkms").returncode == 0
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "libnvidia-ml1").stdout == f"{OTHER}-1"
    upgraded = machine.run("apt-get", "dist-upgrade", "--yes")
    assert "0 upgraded" in upgraded.stdout


def test_a_fabric_manager_of_another_version_installs_and_refuses_to_run(machine):
    assert machine.install(f"nvidia-driver-cuda={PINNED}-1", f"nvidia-fabricmanager={OTHER}-1").returncode == 0
    state = machine.place / STATE_FILE.lstrip("/")
    state.parent.mkdir()
    state.write_text(vendor_gpus())
    checked = machine.run("nv-fabricmanager", "--check")
    assert checked.returncode == 1
    assert f"fabric manager {OTHER} (simulated): the driver is {PINNED}" in checked.stderr


def test_a_repository_that_was_tampered_with_is_refused(machine, tmp_path):
    mounted = machine.place / "srv/muster/vendor"
    subprocess.run(["umount", mounted], check=True)
    subprocess.run(["cp", "-r", f"{vendor.build(print)}/.", mounted], check=True)
    packages = mounted / "Packages"
    packages.write_text(packages.read_text().replace("Depends: libnvidia-ml1", "Depends: libnvidia-ml2"))
    machine.run("find", "/var/lib/apt/lists", "-type", "f", "-delete")
    refused = machine.run("apt-get", "update")
    assert refused.returncode == 100
    assert "unexpected size" in refused.stderr or "Hash Sum mismatch" in refused.stderr


def vendor_gpus() -> str:
    """A healthy node's state file."""
    return simulated_gpus(GPUS, "lab/gpu-0")
