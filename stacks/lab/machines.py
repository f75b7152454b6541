"""Machines of every kind: started, found, and removed, from any state that an interruption left them in."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from spec.schema import MachineKind
from stacks.lab import access, cgroups, container, disk, network, vm
from stacks.lab.model import Machine, cgroup, machines_folder
from stacks.lab.process import TAIL, CommandFailed, run


class Running(BaseModel):
    """A machine that runs. `boot` is another one after each start, `creation` after each new disk."""

    model_config = ConfigDict(frozen=True)

    pid: int
    boot: str
    creation: str


@dataclass(frozen=True)
class Way:
    """How machines of a kind are started.

    `fill` makes a new disk in the machine's folder, `start` gives the id of the process that lives as long as the
    machine does. `login` is run at the first login, which may take `start_s` from the start on, and each try `login_s`.
    """

    fill: Callable[[Machine, Path], None]
    start: Callable[[Machine, Path], Awaitable[int]]
    login: str
    start_s: float
    login_s: float
    pause_s: float


WAYS = {
    # A container answers after 3 s on an idle host, more with many at once.
    MachineKind.CONTAINER: Way(container.fill, container.start, login="true", start_s=120, login_s=30, pause_s=0.3),
    # An emulated machine takes a minute there, and ten where others need the processors too. It may be switched off
    # at any time from its first login on: its keys must be on its disk then.
    MachineKind.VM: Way(vm.fill, vm.start, login="sync", start_s=1200, login_s=120, pause_s=3),
}


def way(name: str, kind: MachineKind) -> Way:
    """How a machine is started. Raises LookupError for a kind that the lab cannot make."""
    if kind not in WAYS:
        known = " and ".join(each.value for each in WAYS)
        raise LookupError(
            f"{name} is declared as machine: {kind.value} · the lab makes {known} · "
            "set machine to one of them for its node group"
        )
    return WAYS[kind]


async def ensure(machine: Machine) -> Running:
    """Makes a machine, or starts it again with its disk, or leaves it where it runs as declared.

    Raises CommandFailed or LookupError, with the end of the machine's console where it does not come up.
    """
    how, where = way(machine.name, machine.kind), disk.folder(machine)
    found = read(machine.stack, machine.name)
    if found and disk.declared(where) == machine and await network.connected(machine):
        # Its start may have been cut off before anybody could log in.
        access.publish(machine.stack)
        await _answers(machine, where, how)
        return found
    await halt(machine.stack, machine.name)
    await disk.prepare(machine, how.fill)
    await network.connect(machine)
    access.write(where / "console.log", "")
    try:
        pid = await how.start(machine, where)
    except CommandFailed as failed:
        raise CommandFailed(f"{machine.name} does not start: {_console(where) or failed}") from None
    access.write(where / "boot.json", json.dumps({"pid": pid, "boot": _boot(disk.creation(where), pid)}))
    access.publish(machine.stack)
    await _answers(machine, where, how)
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
    await container.forget(stack, name)
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


async def _answers(machine: Machine, where: Path, how: Way) -> None:
    login = ("ssh", "-F", str(access.config(machine.stack)), "-o", "BatchMode=yes", machine.name, how.login)
    said = "nothing"
    try:
        async with asyncio.timeout(how.start_s):
            while True:
                try:
                    await run(*login, timeout=how.login_s)
                    return
                except CommandFailed as failed:
                    said = str(failed)
                if not read(machine.stack, machine.name):
                    raise CommandFailed(f"{machine.name} ended after its start: {_console(where)}")
                await asyncio.sleep(how.pause_s)
    except TimeoutError:
        raise CommandFailed(
            f"{machine.name} does not answer {how.start_s:g} s after its start · {where}/console.log: {_console(where)}"
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
