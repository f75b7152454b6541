"""The OCI runtime configuration of a container machine: systemd as PID 1, nearly as on hardware. Pure."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from stacks.lab.disk import VENDOR_MOUNT
from stacks.lab.model import Machine, cgroup, namespace

OCI_VERSION = "1.0.2"

CAPABILITIES = (
    # What OCI engines give by default …
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
    # … and what systemd, nftables, FUSE mounts, pinned memory and `ss -p` need. Not SYS_TIME, SYS_MODULE, SYS_BOOT:
    # clock, modules and power are the host's.
    "IPC_LOCK",
    "NET_ADMIN",
    "SYS_ADMIN",
    "SYS_PTRACE",
)

MASKED = ("/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/sys/firmware")

# All of /proc/sys but net: that part belongs to the machine's own network namespace, and roles set it.
READ_ONLY = (
    *(f"/proc/sys/{each}" for each in ("abi", "debug", "dev", "fs", "kernel", "user", "vm")),
    *(f"/proc/{each}" for each in ("asound", "bus", "fs", "irq", "sysrq-trigger")),
)


class Places(BaseModel):
    """Paths on the host that a bundle names."""

    model_config = ConfigDict(frozen=True)

    root: Path
    vendor: Path | None
    """The vendor repository, none where it does not exist."""
    memory_limits: bool = True
    """Whether this host can limit a container's memory."""


def configuration(machine: Machine, places: Places) -> dict[str, Any]:
    """The `config.json` of a machine's bundle, for the OCI runtime specification 1.0.2."""
    capabilities = sorted(f"CAP_{each}" for each in CAPABILITIES)
    resources: dict[str, Any] = {
        "devices": [
            {"allow": False, "access": "rwm"},
            {"allow": True, "type": "c", "major": 10, "minor": 229, "access": "rwm"},
        ]
    }
    if places.memory_limits:
        resources["memory"] = {"limit": machine.memory_mib * 1024 * 1024}
    return {
        "ociVersion": OCI_VERSION,
        "hostname": machine.name,
        "root": {"path": str(places.root)},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": ["/sbin/init"],
            # systemd reads `container` to know that clock, devices and console are not its own.
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=oci"],
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": False,
        },
        "mounts": _mounts(places),
        "linux": {
            "cgroupsPath": f"/{cgroup(machine.stack, machine.name)}",
            "namespaces": [
                *({"type": each} for each in ("pid", "ipc", "uts", "mount", "cgroup")),
                {"type": "network", "path": f"/run/netns/{namespace(machine.stack, machine.name)}"},
            ],
            "devices": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o666}],
            "resources": resources,
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
        },
    }


def _mounts(places: Places) -> list[dict[str, Any]]:
    mounts = [
        _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
        _mount("/sys/fs/cgroup", "cgroup2", "nosuid", "noexec", "nodev", "rw"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=4m"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777"),  # noqa: S108
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/run", "tmpfs", "nosuid", "nodev", "mode=755", "size=25%"),
        _mount("/run/lock", "tmpfs", "nosuid", "nodev", "noexec", "mode=1777", "size=5m"),
        _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", "size=25%"),  # noqa: S108
    ]
    if places.vendor:
        bind = {"destination": VENDOR_MOUNT, "type": "bind", "source": str(places.vendor), "options": ["bind", "ro"]}
        mounts.append(bind)
    return mounts


def _mount(destination: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}
