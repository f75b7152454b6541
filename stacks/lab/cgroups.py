"""Control groups of machines, on hosts with version 1, version 2 or both."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from pydantic import BaseModel, ConfigDict

UNIFIED = Path("/sys/fs/cgroup")
"""Where version 2 is mounted on hosts that have nothing else."""

LIMIT_S = 20.0
"""How long killed processes may take to end."""


class Hierarchy(BaseModel):
    """One mounted hierarchy: version 2 has no controllers of its own here, version 1 has those in its mount options."""

    model_config = ConfigDict(frozen=True)

    mount: Path
    version: int
    controllers: frozenset[str] = frozenset()


def hierarchies(mountinfo: str) -> tuple[Hierarchy, ...]:
    """All hierarchies in the text of /proc/self/mountinfo. Pure."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(tail[2].split(",")) if tail[0] == "cgroup" else frozenset()
        version = 2 if tail[0] == "cgroup2" else 1
        found.append(Hierarchy(mount=Path(fields[4]), version=version, controllers=controllers))
    return tuple(found)


def mounted() -> tuple[Hierarchy, ...]:
    """This host's hierarchies."""
    return hierarchies(Path("/proc/self/mountinfo").read_text())


def limits_memory(found: tuple[Hierarchy, ...]) -> bool:
    """Whether a container's memory can be limited here."""
    for each in found:
        if each.version == 1 and "memory" in each.controllers:
            return True
        if each.version == 2 and each.mount == UNIFIED:
            return "memory" in (each.mount / "cgroup.controllers").read_text().split()
    return False


def beside_version_1(found: tuple[Hierarchy, ...], name: str) -> Path | None:
    """A machine's group in a version 2 hierarchy that runc does not manage, made if missing; none where it does.

    On a host with both versions runc places containers in version 1 only; systemd in the machine manages version 2,
    and would find itself at the host's root there, side by side with every other machine's systemd.
    """
    for each in found:
        if each.version == 2 and each.mount != UNIFIED:
            group = each.mount / name
            group.mkdir(exist_ok=True)
            return group
    return None


def own(found: tuple[Hierarchy, ...], name: str) -> Path:
    """A machine's group in one hierarchy, made if missing, by which all its processes are found again.

    Raises LookupError where the host has no control groups. Groups of `cpuset` take no process before they have CPUs.
    """
    fit = sorted((each for each in found if "cpuset" not in each.controllers), key=lambda each: -each.version)
    if not fit:
        raise LookupError("no control groups are mounted · on this machine · mount cgroup2 on /sys/fs/cgroup")
    group = fit[0].mount / name
    group.mkdir(exist_ok=True)
    return group


async def clear(name: str) -> None:
    """Ends every process in a machine's groups and removes the groups. Raises TimeoutError where one does not end."""
    groups = [each.mount / name for each in mounted()]
    try:
        async with asyncio.timeout(LIMIT_S):
            while any(group.exists() for group in groups):
                for group in groups:
                    _kill(group)
                    _remove(group)
                await asyncio.sleep(0.05)
    except TimeoutError:
        left = ", ".join(str(group) for group in groups if group.exists())
        raise TimeoutError(
            f"processes did not end within {LIMIT_S:g} s of being killed · {left} · see what they wait for "
            "(ps -o pid,stat,wchan), and run the same again"
        ) from None


def named(prefix: str) -> frozenset[str]:
    """What follows a prefix in the names of control groups directly below each hierarchy's root."""
    return frozenset(
        group.name.removeprefix(prefix)
        for each in mounted()
        for group in each.mount.glob(f"{prefix}*")
        if group.is_dir()
    )


def _kill(group: Path) -> None:
    for procs in [group / "cgroup.procs", *group.glob("**/cgroup.procs")]:
        with contextlib.suppress(OSError):
            for pid in procs.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def _remove(group: Path) -> None:
    below = sorted((each for each in group.glob("**/") if each != group), key=lambda each: -len(each.parts))
    for each in [*below, group]:
        with contextlib.suppress(OSError):
            each.rmdir()
