"""Container machines: started, found, and removed, from any state that an interruption left them in."""

import asyncio
import json
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from images import node as node_image
from stacks.lab import access, bundle, cgroups, disk, network
from stacks.lab.model import Machine, cgroup, machines_folder, runc_folder
from stacks.lab.process import TAIL, CommandFailed, run, try_run

START = 120
"""Seconds that a machine has from its start to its first login: 3 alone on an idle host, more with many at once."""

# The disk is mounted in a mount namespace that only the machine keeps: it is gone when the machine is.
LAUNCH = """
[ -z "$1" ] || echo $$ >"$1/cgroup.procs"
cd "$2"
mount -t overlay overlay -o "lowerdir=$3,upperdir=upper,workdir=work" rootfs
shift 3
exec "$@" >>console.log 2>&1 </dev/null
"""


class Running(BaseModel):
    """A machine that runs. `boot` is another one after each start, `creation` after each new disk."""

    model_config = ConfigDict(frozen=True)

    pid: int
    boot: str
    creation: str


async def ensure(machine: Machine) -> Running:
    """Makes a machine, or starts it again with its disk, or leaves it where it runs as declared.

    Raises CommandFailed or LookupError, with the end of the machine's console where it does not come up.
    """
    where = disk.folder(machine)
    found = read(machine.stack, machine.name)
    if found and disk.declared(where) == machine and await network.connected(machine):
        return found
    await halt(machine.stack, machine.name)
    await disk.prepare(machine)
    await network.connect(machine)
    await _start(machine, where)
    access.publish(machine.stack)
    await _answers(machine, where)
    started = read(machine.stack, machine.name)
    if not started:
        raise CommandFailed(f"{machine.name} ended after its start: {_console(where)}")
    return started


def read(stack: str, name: str) -> Running | None:
    """The machine if it runs: its first process is the one that was started, not another with the same number."""
    where = machines_folder(stack) / name
    try:
        kept = json.loads((where / "boot.json").read_bytes())
        found = Running.model_validate({**kept, "creation": disk.creation(where)})
    except (OSError, ValueError, ValidationError, TypeError):
        return None
    return found if found.boot == _boot(found.creation, found.pid) else None


async def halt(stack: str, name: str) -> None:
    """Ends a machine and all that its start made but its disk."""
    (machines_folder(stack) / name / "boot.json").unlink(missing_ok=True)
    await cgroups.clear(cgroup(stack, name))
    await try_run("runc", "--root", str(runc_folder(stack)), "delete", "--force", name)
    await cgroups.clear(cgroup(stack, name))
    await network.disconnect(stack, name)


async def remove(stack: str, name: str) -> None:
    """Ends a machine and removes all of it."""
    await halt(stack, name)
    where = machines_folder(stack) / name
    # The declaration goes first: what is left after an interruption counts as no machine.
    (where / "machine.json").unlink(missing_ok=True)
    await asyncio.to_thread(shutil.rmtree, where, ignore_errors=True)
    access.publish(stack)


async def _start(machine: Machine, where: Path) -> None:
    hierarchies = cgroups.mounted()
    vendor = disk.vendor_repository(machine.vendor) if machine.vendor else None
    places = bundle.Places(
        root=where / "rootfs",
        vendor=vendor if vendor and vendor.is_dir() else None,
        memory_limits=cgroups.limits_memory(hierarchies),
    )
    access.write(where / "config.json", json.dumps(bundle.configuration(machine, places), indent=2))
    access.write(where / "console.log", "")
    group = cgroups.beside_version_1(hierarchies, cgroup(machine.stack, machine.name))
    pid_file = where / "init.pid"
    runc = ("runc", "--root", str(runc_folder(machine.stack)), "run", "--detach", "--bundle", str(where))
    launch = ("sh", "-ceu", LAUNCH, "sh", str(group or ""), str(where), str(node_image.root(machine.image)))
    try:
        await run(
            *("unshare", "--mount", "--propagation", "private"),
            *launch,
            *runc,
            "--pid-file",
            str(pid_file),
            machine.name,
        )
    except CommandFailed as failed:
        raise CommandFailed(f"{machine.name} does not start: {_console(where) or failed}") from None
    creation, pid = disk.creation(where), int(pid_file.read_text())
    access.write(where / "boot.json", json.dumps({"pid": pid, "boot": _boot(creation, pid)}))


async def _answers(machine: Machine, where: Path) -> None:
    login = ("ssh", "-F", str(access.config(machine.stack)), "-o", "BatchMode=yes", machine.name, "true")
    said = "nothing"
    try:
        async with asyncio.timeout(START):
            while True:
                try:
                    await run(*login, timeout=30)
                    return
                except CommandFailed as failed:
                    said = str(failed)
                await asyncio.sleep(0.3)
    except TimeoutError:
        raise CommandFailed(
            f"{machine.name} does not answer {START} s after its start · {where}/console.log: {_console(where)}"
            f" · the last login said: {said}"
        ) from None


def _boot(creation: str, pid: int) -> str | None:
    """A start's name: the disk and the kernel's time of the first process's start. None where there is no process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return f"{creation}-{fields[19]}" if fields[0] not in ("Z", "X") else None


def _console(where: Path) -> str:
    try:
        return (where / "console.log").read_text(errors="replace")[-TAIL:].strip()
    except OSError:
        return ""
