"""The running kernel and what it complained of since it started."""

import platform
import re
from collections import Counter

from validation.node.host import CommandFailed, Host
from validation.node.machine import is_container
from validation.node.measure import Json, Unmeasurable, measure

XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-[^)\n]{1,60})?\): (\d+)")
"""As in `NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.` (NVIDIA, XID
Errors); of a partition (MIG) as in `NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: …` (NVIDIA, GPU
Memory Error Management)."""

ANY_XID = re.compile(r"NVRM: Xid\b")
UNREAD = 0
"""The number of an Xid that could not be read: there is none of that number, so no control lets it pass."""

FALLEN = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)\s[^\0]{0,200}?fallen off the bus")
"""Some drivers tell of Xid 79 only so, over three lines and without its number."""

OFF_THE_BUS = 79

OOM = re.compile(r"Out of memory: Kill|oom-kill:|Memory cgroup out of memory")
IO_ERROR = re.compile(
    r"I/O error, dev|Buffer I/O error|EXT4-fs error|XFS \(.*\): (?:metadata I/O error|Corruption)|critical medium error"
    r"|nvme\S*: (?:I/O .* timeout|controller is down)|blk_update_request: I/O error"
)
LINK_DOWN = re.compile(r"Link is [Dd]own|link status definitely down|(?<!SATA )[Ll]ink [Dd]own\b|Port: \d+ Link DOWN")
HUNG_TASK = re.compile(r"blocked for more than \d+ seconds|soft lockup|hard LOCKUP|rcu.*detected stalls")
MACHINE_CHECK = re.compile(r"mce: .*(?:Hardware Error|Machine check)|\[Hardware Error\]: (?:Machine check|CPU \d+)")
PCIE_ERROR = re.compile(r"AER: .*(?:error|Error).* (?:received|message)|PCIe Bus Error: severity=")


@measure("kernel.version", source="uname")
def version() -> str:
    """The running kernel's release, as in `6.1.0-31-amd64`."""
    return platform.release()


@measure("kernel.command_line", source="/proc/cmdline")
def command_line(host: Host) -> str:
    """What the kernel was started with."""
    return host.read("/proc/cmdline")


@measure("kernel.uptime_s", unit="s", source="/proc/uptime")
def uptime_s(host: Host) -> float:
    """Time since the kernel started."""
    return float(host.read("/proc/uptime").split()[0])


@measure("kernel.boot_id", source="/proc")
def boot_id(host: Host) -> str:
    """A number that the kernel draws when it starts: another one says that the machine was started again."""
    return host.read("/proc/sys/kernel/random/boot_id")


@measure("kernel.taints", source="/proc")
def taints(host: Host) -> int:
    """The kernel's taint mask: 128 after an oops, 16384 after a soft lockup (tainted-kernels.rst)."""
    return int(host.read("/proc/sys/kernel/tainted"))


@measure("kernel.xids", source="kernel log")
def xids(host: Host) -> list[dict[str, Json]]:
    """GPU errors that the driver logged since the kernel started: `{gpu, xid, count}`, the GPU by its PCI address."""
    return read_xids(host.once(log))


@measure("kernel.oom", unit="times", source="kernel log")
def oom(host: Host) -> int:
    """Processes killed for want of memory since the kernel started."""
    return lines(OOM, host.once(log))


@measure("kernel.io_errors", unit="lines", source="kernel log")
def io_errors(host: Host) -> int:
    """Errors of disks and local filesystems since the kernel started."""
    return lines(IO_ERROR, host.once(log))


@measure("kernel.link_errors", unit="lines", source="kernel log")
def link_errors(host: Host) -> int:
    """Network links that went down since the kernel started."""
    return lines(LINK_DOWN, host.once(log))


@measure("kernel.hung_tasks", unit="lines", source="kernel log")
def hung_tasks(host: Host) -> int:
    """Tasks that hung and CPUs that were stuck since the kernel started."""
    return lines(HUNG_TASK, host.once(log))


@measure("kernel.machine_checks", unit="lines", source="kernel log")
def machine_checks(host: Host) -> int:
    """Hardware errors that the processors reported since the kernel started."""
    return lines(MACHINE_CHECK, host.once(log))


@measure("kernel.pcie_errors", unit="lines", source="kernel log")
def pcie_errors(host: Host) -> int:
    """Errors of PCI Express links since the kernel started, corrected ones among them."""
    return lines(PCIE_ERROR, host.once(log))


def log(host: Host) -> str:
    """The kernel's messages since it started: of the journal, else of the kernel's own buffer.

    Raises Unmeasurable where the node has no kernel of its own or neither can be read: silence is not health.
    """
    if host.once(is_container):
        raise Unmeasurable("a container shares its host's kernel log")
    refused = []
    for argv in (("journalctl", "-k", "-b", "-q", "-o", "cat", "--no-pager"), ("dmesg", "--notime")):
        try:
            told = host.run(*argv)
        except (CommandFailed, Unmeasurable) as error:
            refused.append(str(error))
            continue
        if told.strip():
            return told
        refused.append(f"{argv[0]} shows no kernel message")
    raise Unmeasurable("; ".join(refused))


def lines(pattern: re.Pattern[str], told: str) -> int:
    """How many lines of a log a pattern is found in."""
    return sum(1 for line in told.splitlines() if pattern.search(line))


def read_xids(told: str) -> list[dict[str, Json]]:
    """The Xids in a kernel log, counted by GPU and number."""
    counts = Counter((address.lower(), int(number)) for address, number in XID.findall(told))
    for address in {each.lower().partition(".")[0] for each in FALLEN.findall(told)}:
        counts.setdefault((address, OFF_THE_BUS), 1)
    if unread := len(ANY_XID.findall(told)) - len(XID.findall(told)):
        counts["unknown", UNREAD] = unread
    return [{"gpu": gpu, "xid": xid, "count": count} for (gpu, xid), count in sorted(counts.items())]
