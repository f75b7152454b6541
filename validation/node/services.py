"""Units, kernel settings and limits."""

import resource
from collections.abc import Iterable, Sequence
from pathlib import Path

from validation.node.host import Host
from validation.node.measure import measure

SETTINGS = (
    "fs.file-max",
    "kernel.dmesg_restrict",
    "kernel.numa_balancing",
    "kernel.randomize_va_space",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
"""Kernel settings that training or security depends on: measured where the spec names none."""


@measure("units.failed", source="systemctl list-units")
def failed(host: Host) -> list[str]:
    """Units that systemd gave up."""
    return sorted(each["unit"] for each in host.once(units) if each["active"] == "failed")


@measure("services.active", source="systemctl list-units")
def active(host: Host) -> dict[str, str]:
    """The state of every service that systemd has loaded: `active`, `inactive`, `failed`, …"""
    return {
        each["unit"]: each["active"]
        for each in host.once(units)
        if each["unit"].endswith(".service") and each["load"] == "loaded"
    }


def units(host: Host) -> list[dict[str, str]]:
    """All that systemd has loaded."""
    found: list[dict[str, str]] = host.run_json("systemctl", "list-units", "--all", "--no-pager", "--output=json")
    return found


@measure("sysctl.values", source="/proc/sys")
def sysctl(host: Host) -> dict[str, str | None]:
    """Kernel settings that the spec names, or those that usually matter; none where the kernel has no such setting."""
    names: Iterable[str] = host.expectations.get("sysctl.values") or SETTINGS
    return {name: setting(Path("/proc/sys"), name) for name in names}


def setting(root: Path, name: str) -> str | None:
    """A setting's value, its blanks made one. A dot in an interface's name is written `/`, as sysctl does."""
    path = (root / name.translate(str.maketrans("./", "/."))).resolve()
    return " ".join(path.read_text().split()) if path.is_file() and root.resolve() in path.parents else None


@measure("limits.memlock", unit="bytes", source="getrlimit, slurmd's /proc/PID/limits")
def memlock(host: Host) -> int | str:
    """Memory that a process may lock: the lesser of a login's and slurmd's hard limits, or `unlimited`.

    RDMA registers its buffers within it.
    """
    return _least(host, resource.RLIMIT_MEMLOCK, "Max locked memory")


@measure("limits.nofile", unit="files", source="getrlimit, slurmd's /proc/PID/limits")
def nofile(host: Host) -> int | str:
    """Files that a process may have open: the lesser of a login's and slurmd's hard limits, or `unlimited`."""
    return _least(host, resource.RLIMIT_NOFILE, "Max open files")


def _least(host: Host, kind: int, name: str) -> int | str:
    limits = [resource.getrlimit(kind)[1]]
    limits += [hard_limit(host.read(path / "limits"), name) for path in _processes("slurmd")]
    return least(limits)


def least(limits: Sequence[int]) -> int | str:
    """The smallest limit; RLIM_INFINITY is the largest there is."""
    bounded = [each for each in limits if each != resource.RLIM_INFINITY]
    return min(bounded) if bounded else "unlimited"


def hard_limit(told: str, name: str) -> int:
    """A hard limit from /proc/PID/limits. Raises LookupError where it is not there."""
    for line in told.splitlines():
        if line.startswith(name):
            value = line[len(name) :].split()[1]
            return resource.RLIM_INFINITY if value == "unlimited" else int(value)
    raise LookupError(f"no limit {name!r}")


def _processes(name: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text().strip() == name:
                found.append(path)
        except OSError:  # it ended meanwhile
            continue
    return found
