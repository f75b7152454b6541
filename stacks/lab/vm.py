"""Virtual machines: an overlay on the image's disk, a disk with the identity, and QEMU in the lab's namespace."""

import asyncio
import shutil
import subprocess
from pathlib import Path

from images.node import vm as image
from stacks.lab import cgroups, disk, qemu
from stacks.lab.accelerator import accelerator
from stacks.lab.model import Machine, cgroup, namespace
from stacks.lab.process import CommandFailed, run

LABEL = "muster-identity"
IDENTITY_SIZE = "16M"

# All processes of the machine are in its control group from their first moment on, whatever interrupts the start.
LAUNCH = """
echo $$ >"$1/cgroup.procs"
shift
exec "$@"
"""


def fill(machine: Machine, where: Path) -> None:
    """Makes the disk: an empty overlay. Raises LookupError without the image it is on."""
    base = image.base(machine.image)
    if not base.exists():
        raise LookupError(f"the image {machine.image} is not in the cache · {base} · run muster up, which builds it")
    over = ("-f", "qcow2", "-F", "qcow2", "-b", str(base))
    _tool("qemu-img", "create", "-q", *over, str(where / "disk.qcow2"), f"{machine.disk_gib}G")


async def start(machine: Machine, where: Path) -> int:
    """The id of the emulator's process. Raises CommandFailed, and OSError without QEMU."""
    kernel = image.kernel(machine.image)
    proof = await asyncio.to_thread(accelerator, kernel)
    vendor = disk.vendor_of(machine)
    # At each start, as its ports may have changed since the last one.
    await asyncio.to_thread(_identity, machine if vendor else machine.model_copy(update={"vendor": None}), where)
    places = qemu.Places(where=where, kernel=kernel, initrd=image.initrd(machine.image), vendor=vendor)
    group = cgroups.own(cgroups.mounted(), cgroup(machine.stack, machine.name))
    command = qemu.command(machine, places, proof.accelerator)
    inside = ("ip", "netns", "exec", namespace(machine.stack))
    await run("sh", "-ceu", LAUNCH, "sh", str(group), *inside, *command, timeout=120)
    return int((where / "qemu.pid").read_text())


def _identity(machine: Machine, where: Path) -> None:
    """Writes the disk whose files the initrd copies onto the root."""
    folder, made = where / "identity", where / "identity.img"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o755)  # of the machine's root, whatever this process's umask is
    layer = disk.identify(machine, where, folder)
    for path, text in qemu.files(machine).items():
        layer.write(path, text)
    for unit, file in qemu.enabled(machine).items():
        layer.link(f"etc/systemd/system/multi-user.target.wants/{unit}", file)
    made.unlink(missing_ok=True)
    made.touch(mode=0o600)
    _tool("mkfs.ext4", "-q", "-F", "-d", str(folder), "-L", LABEL, str(made), IDENTITY_SIZE)
    shutil.rmtree(folder)


def _tool(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise CommandFailed(f"{argv[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
