"""Container machines: an overlay on the node image, and systemd in namespaces of its own, started by runc."""

import json
from pathlib import Path

from images import node as node_image
from stacks.lab import access, bundle, cgroups, disk
from stacks.lab.model import Machine, cgroup, runc_folder
from stacks.lab.process import run, try_run

MASKED_UNITS = (
    "console-getty.service",
    "nvmf-autoconnect.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
)
"""What fails or is of no use in a container: it has no console and no host NQN of its own."""

# The disk is mounted in a mount namespace that only the machine keeps: it is gone when the machine is.
LAUNCH = """
[ -z "$1" ] || echo $$ >"$1/cgroup.procs"
cd "$2"
mount -t overlay overlay -o "lowerdir=$3,upperdir=upper,workdir=work" rootfs
shift 3
exec "$@" >>console.log 2>&1 </dev/null
"""


def fill(machine: Machine, where: Path) -> None:
    """Makes the disk: an upper layer that has the machine's identity."""
    for each in ("upper", "work", "rootfs"):
        (where / each).mkdir()
        (where / each).chmod(0o755)  # of the machine's root, whatever this process's umask is
    layer = disk.identify(machine, where, where / "upper")
    layer.write("etc/hosts", disk.hosts_file(machine))
    for unit in MASKED_UNITS:
        layer.link(f"etc/systemd/system/{unit}", "/dev/null")


async def start(machine: Machine, where: Path) -> int:
    """The id of the machine's first process. Raises CommandFailed."""
    hierarchies = cgroups.mounted()
    places = bundle.Places(
        root=where / "rootfs",
        vendor=disk.vendor_of(machine),
        memory_limits=cgroups.limits_memory(hierarchies),
    )
    access.write(where / "config.json", json.dumps(bundle.configuration(machine, places), indent=2))
    group = cgroups.beside_version_1(hierarchies, cgroup(machine.stack, machine.name))
    pid_file = where / "init.pid"
    runc = ("runc", "--root", str(runc_folder(machine.stack)), "run", "--detach", "--bundle", str(where))
    launch = ("sh", "-ceu", LAUNCH, "sh", str(group or ""), str(where), str(node_image.root(machine.image)))
    private = ("unshare", "--mount", "--propagation", "private")
    await run(*private, *launch, *runc, "--pid-file", str(pid_file), machine.name)
    return int(pid_file.read_text())


async def forget(stack: str, name: str) -> None:
    """Makes runc forget a container that has ended, where it knows it."""
    await try_run("runc", "--root", str(runc_folder(stack)), "delete", "--force", name)
