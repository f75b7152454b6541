"""The parallel filesystem: as a client sees it, and as its monitors do."""

import os
import secrets
from pathlib import Path

from validation.node.host import Host
from validation.node.measure import Json, Unmeasurable, measure

SAMPLE_BYTES = 1024 * 1024

PARALLEL = frozenset({"ceph", "fuse.ceph", "fuse.ceph-fuse", "lustre", "wekafs", "gpfs", "beegfs", "nfs", "nfs4"})
"""Kinds, as /proc/mounts names them, that all nodes share."""


@measure("filesystem.mounted", source="/proc/mounts")
def mounted(host: Host) -> bool:
    """Whether a parallel filesystem is mounted where the spec puts it: another kind there would be the node's own.

    Of several at one place the last mounted is the one that is seen.
    """
    path = host.expected("filesystem.mount", str)
    kinds = [kind for _, mount, kind, *_ in map(str.split, host.read("/proc/mounts").splitlines()) if mount == path]
    return bool(kinds) and kinds[-1] in PARALLEL


@measure("filesystem.writable", source="a file written, synced and read back", limit_s=20)
def writable(host: Host) -> bool:
    """Whether the mounted filesystem takes a file of 1 MiB and gives the same bytes back.

    Raises Unmeasurable where it is not mounted, OSError with the kernel's reason where a step fails, TimeoutError where
    it hangs.
    """
    folder = _mounted(host)
    return bool(host.in_child(lambda: write_and_read(folder)))


def write_and_read(folder: Path) -> bool:
    """Writes a file of its own, syncs it to the servers, drops it from the cache and reads it.

    Its name is removed as soon as it is open, so that nothing is left where the rest hangs and the process is ended.
    """
    sample = secrets.token_bytes(SAMPLE_BYTES)
    path = folder / f".muster-{secrets.token_hex(16)}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        path.unlink()
        written = file.write(sample)
        os.fsync(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        return written == SAMPLE_BYTES and file.read(SAMPLE_BYTES) == sample


@measure("filesystem.free_percent", unit="%", source="statvfs", limit_s=20)
def free_percent(host: Host) -> float:
    """Room that users have left on the mounted parallel filesystem."""
    folder = _mounted(host)
    return float(host.in_child(lambda: free(folder)[0]))


def free(folder: Path) -> tuple[float, float | None]:
    """Percent of bytes and of inodes that are free below a folder; no inodes where it does not count them."""
    told = os.statvfs(folder)
    inodes = round(100 * told.f_favail / told.f_files, 2) if told.f_files else None
    return round(100 * told.f_bavail / told.f_blocks, 2) if told.f_blocks else 100.0, inodes


def _mounted(host: Host) -> Path:
    if not mounted(host):
        raise Unmeasurable(f"{host.expected('filesystem.mount', str)} is not mounted")
    return Path(host.expected("filesystem.mount", str))


def ceph(host: Host) -> Json:
    """The cluster's status, asked of its monitors as a storage node may. Raises Unmeasurable on other nodes."""
    host.expected("filesystem.monitors", int)
    return host.run_json("ceph", "--connect-timeout", "8", "status", "--format", "json")


@measure("filesystem.health", source="ceph status", limit_s=20)
def health(host: Host) -> str:
    """`HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`."""
    return str(host.once(ceph)["health"]["status"])


@measure("filesystem.health_checks", source="ceph status", limit_s=20)
def health_checks(host: Host) -> list[str]:
    """The codes of what the monitors complain of, as in `MDS_INSUFFICIENT_STANDBY`."""
    return sorted(host.once(ceph)["health"].get("checks", {}))


@measure("filesystem.quorum", unit="monitors", source="ceph status", limit_s=20)
def quorum(host: Host) -> int:
    """How many monitors are in quorum."""
    return len(list(host.once(ceph)["quorum_names"]))


@measure("filesystem.metadata_active", unit="servers", source="ceph status", limit_s=20)
def metadata_active(host: Host) -> int:
    """How many metadata servers serve."""
    return sum(each["status"].startswith("up:active") for each in host.once(ceph)["fsmap"]["by_rank"])


@measure("filesystem.metadata_standby", unit="servers", source="ceph status", limit_s=20)
def metadata_standby(host: Host) -> int:
    """How many metadata servers wait to take over; one that replays along with an active server is among them."""
    fsmap = host.once(ceph)["fsmap"]
    replaying = [each for each in fsmap["by_rank"] if each["status"] == "up:standby-replay"]
    return int(fsmap["up:standby"]) + len(replaying)


@measure("filesystem.osds_down", unit="OSDs", source="ceph status", limit_s=20)
def osds_down(host: Host) -> int:
    """How many of the filesystem's disks do not serve: down, or up and taken out."""
    osds = host.once(ceph)["osdmap"]
    osds = osds.get("osdmap", osds)
    return int(osds["num_osds"]) - min(int(osds["num_up_osds"]), int(osds["num_in_osds"]))
