"""Processors, memory, disks and load of the machine itself."""

import os
import platform
from pathlib import Path

from validation.node.filesystem import free
from validation.node.host import Host
from validation.node.measure import Unmeasurable, measure

KIB_PER_GIB = 1024 * 1024

LOCAL_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "vfat", "tmpfs"})
"""Kinds that cannot hang on a network and that fill up."""


@measure("machine.hostname", source="uname")
def hostname() -> str:
    """The name that the node goes by."""
    return platform.node()


@measure("machine.virtualization", source="systemd-detect-virt")
def virtualization(host: Host) -> str:
    """What the node runs in: `none` for bare metal, `kvm`, `qemu`, `container-other`, …"""
    return host.once(detected)


def detected(host: Host) -> str:
    """What systemd takes the machine for; it exits with 1 where that is bare metal."""
    return str(host.ask("systemd-detect-virt").stdout.strip())


def is_container(host: Host) -> bool:
    """Whether the node shares its host's kernel."""
    return bool(host.ask("systemd-detect-virt", "--container", "--quiet").rc == 0)


@measure("machine.product", source="/sys/class/dmi/id")
def product(host: Host) -> str:
    """The machine's vendor and product name."""
    return " ".join(host.read(f"/sys/class/dmi/id/{part}") for part in ("sys_vendor", "product_name"))


@measure("machine.firmware", source="/sys/class/dmi/id")
def firmware(host: Host) -> str:
    """The version of the machine's firmware."""
    return host.read("/sys/class/dmi/id/bios_version")


@measure("memory.total_gib", unit="GiB", source="/proc/meminfo")
def memory_total_gib(host: Host) -> float:
    """Memory that the kernel manages; somewhat less than what is built in."""
    return round(_meminfo(host)["MemTotal"] / KIB_PER_GIB, 2)


@measure("memory.available_percent", unit="%", source="/proc/meminfo")
def memory_available_percent(host: Host) -> float:
    """Memory that a new job could have without swapping."""
    told = _meminfo(host)
    return round(100 * told["MemAvailable"] / told["MemTotal"], 2)


@measure("memory.swap_gib", unit="GiB", source="/proc/meminfo")
def memory_swap_gib(host: Host) -> float:
    """Swap space that is switched on."""
    return round(_meminfo(host)["SwapTotal"] / KIB_PER_GIB, 2)


def _meminfo(host: Host) -> dict[str, int]:
    return meminfo(host.read("/proc/meminfo"))


def meminfo(told: str) -> dict[str, int]:
    """The kernel's table of memory, KiB."""
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in told.splitlines()) if rest}


@measure("memory.ecc_uncorrected", unit="errors", per="controller", source="EDAC")
def memory_ecc_uncorrected(host: Host) -> dict[str, int]:
    """Uncorrected errors of each memory controller since the machine started."""
    found = {path.name: int(host.read(path / "ue_count")) for path in Path("/sys/devices/system/edac/mc").glob("mc*")}
    if not found:
        raise Unmeasurable("the kernel watches no memory controller")
    return found


@measure("load.per_cpu", source="/proc/loadavg")
def load_per_cpu() -> float:
    """Processes that ran or waited in the last minute, over the CPUs: on a node that is closed, somebody's remains."""
    return round(os.getloadavg()[0] / _cpus(), 2)


@measure("cpu.count", unit="CPUs")
def cpu_count() -> int:
    """CPUs that the node may use."""
    return _cpus()


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


@measure("cpu.governor", source="cpufreq")
def cpu_governor(host: Host) -> list[str]:
    """The frequency governors in use, each once; none where the firmware governs, or a hypervisor."""
    found = Path("/sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")
    return sorted({host.read(path) for path in found})


@measure("disk.free_percent", unit="%", per="mount", source="statvfs", limit_s=20)
def disk_free_percent(host: Host) -> dict[str, float]:
    """Room left on each local filesystem that can be written to."""
    return {mount: room for mount, (room, _) in host.once(_disks).items()}


@measure("disk.free_inodes_percent", unit="%", per="mount", source="statvfs", limit_s=20)
def disk_free_inodes_percent(host: Host) -> dict[str, float]:
    """Inodes left on each local filesystem that counts them."""
    return {mount: inodes for mount, (_, inodes) in host.once(_disks).items() if inodes is not None}


def _disks(host: Host) -> dict[str, tuple[float, float | None]]:
    mounts = local_mounts(host.read("/proc/mounts"))
    answer: dict[str, tuple[float, float | None]] = host.in_child(
        lambda: {mount: free(Path(mount)) for mount in mounts if Path(mount).is_dir()}
    )
    if not answer:
        raise Unmeasurable("no local filesystem is mounted")
    return answer


def local_mounts(told: str) -> list[str]:
    """Where /proc/mounts shows local filesystems mounted for writing, each device once.

    What the kernel and sessions keep there is left out. Spaces in paths are written `\\040` there.
    """
    found: dict[tuple[str, str], str] = {}
    for line in told.splitlines():
        device, mount, kind, options, *_ = line.split()
        path = mount.replace("\\040", " ")
        kernels = path.startswith(("/sys/", "/proc/", "/dev", "/run/user/")) and path != "/dev/shm"  # noqa: S108
        if kind in LOCAL_FILESYSTEMS and "rw" in options.split(",") and not kernels:
            found.setdefault((device, path if kind == "tmpfs" else kind), path)
    return sorted(found.values())
