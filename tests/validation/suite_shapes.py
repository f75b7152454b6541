"""What every measure's value looks like: the table that controls are written against."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Each:
    """A mapping from any name to values of one shape."""

    of: Any


@dataclass(frozen=True)
class Either:
    """One shape or another."""

    of: tuple[Any, ...]


NUMBER = Either((int, float))
MAYBE_TEXT = Either((str, None))

SHAPES: dict[str, Any] = {
    "cpu.count": int,
    "cpu.governor": [str],
    "disk.free_inodes_percent": Each(NUMBER),
    "disk.free_percent": Each(NUMBER),
    "filesystem.free_percent": NUMBER,
    "filesystem.health": str,
    "filesystem.health_checks": [str],
    "filesystem.metadata_active": int,
    "filesystem.metadata_standby": int,
    "filesystem.mounted": bool,
    "filesystem.osds_down": int,
    "filesystem.quorum": int,
    "filesystem.writable": bool,
    "firewall.open_ports": [str],
    "firewall.policy": str,
    "firewall.rules_digest": str,
    "gpu.count": int,
    "gpu.cuda_version": str,
    "gpu.driver_version": str,
    "gpu.ecc_corrected": Each(int),
    "gpu.ecc_mode": Each(bool),
    "gpu.ecc_uncorrected": Each(int),
    "gpu.fabric_state": Each(str),
    "gpu.memory_gib": Each(NUMBER),
    "gpu.mig_mode": Each(bool),
    "gpu.model": Each(str),
    "gpu.nvlink_errors": Each(int),
    "gpu.nvlinks_active": Each(int),
    "gpu.pcie_link": Each({"generation": int, "width": int, "max_generation": int, "max_width": int}),
    "gpu.persistence": Each(bool),
    "gpu.power_limit_percent": Each(NUMBER),
    "gpu.power_limit_w": Each(NUMBER),
    "gpu.processes": Each(int),
    "gpu.remapped_rows": Each({"correctable": int, "uncorrectable": int, "pending": bool, "failure": bool}),
    "gpu.temperature_c": Each(int),
    "gpu.throttle_reasons": Each([str]),
    "kernel.boot_id": str,
    "kernel.command_line": str,
    "kernel.hung_tasks": int,
    "kernel.io_errors": int,
    "kernel.link_errors": int,
    "kernel.machine_checks": int,
    "kernel.oom": int,
    "kernel.pcie_errors": int,
    "kernel.taints": int,
    "kernel.uptime_s": NUMBER,
    "kernel.version": str,
    "kernel.xids": [{"gpu": str, "xid": int, "count": int}],
    "limits.memlock": Either((int, str)),
    "limits.nofile": Either((int, str)),
    "load.per_cpu": NUMBER,
    "mac.state": str,
    "machine.firmware": str,
    "machine.hostname": str,
    "machine.product": str,
    "machine.virtualization": str,
    "memory.available_percent": NUMBER,
    "memory.ecc_uncorrected": Each(int),
    "memory.swap_gib": NUMBER,
    "memory.total_gib": NUMBER,
    "network.bonds": Each({"mode": str, "up": [str], "down": [str]}),
    "network.errors": Each(int),
    "network.interfaces": Each(
        {"address": MAYBE_TEXT, "mtu": Either((int, None)), "state": str, "speed_gbps": Either((float, None))}
    ),
    "network.link_flaps": Each(int),
    "network.mtu_path": Each(int),
    "network.peers_lost": Each(NUMBER),
    "packages.broken": [str],
    "packages.held": [str],
    "pins.packages": Each(MAYBE_TEXT),
    "ports.listening": [str],
    "ports.unexpected": [str],
    "rdma.errors": Each(int),
    "rdma.ports": Each(
        {
            "device": str,
            "port": int,
            "state": str,
            "physical_state": str,
            "link_layer": str,
            "rate_gbps": NUMBER,
            "netdev": MAYBE_TEXT,
        }
    ),
    "services.active": Each(str),
    "slurm.node_state": {"state": str, "reason": MAYBE_TEXT, "gres": MAYBE_TEXT},
    "ssh.settings": Each(str),
    "sysctl.values": Each(MAYBE_TEXT),
    "time.offset_ms": NUMBER,
    "time.source": str,
    "time.stratum": int,
    "time.synchronised": bool,
    "units.failed": [str],
    "users.login": [str],
    "users.sudo": [str],
    "users.without_password": [str],
}


def fits(value: Any, shape: Any) -> bool:
    """Whether a JSON value has a shape. True is no number, and a field too many is a misfit."""
    if isinstance(shape, Either):
        return any(fits(value, each) for each in shape.of)
    if isinstance(shape, Each):
        return isinstance(value, dict) and all(fits(each, shape.of) for each in value.values())
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if isinstance(shape, dict):
        same = isinstance(value, dict) and value.keys() == shape.keys()
        return same and all(fits(value[key], each) for key, each in shape.items())
    return value is None if shape is None else type(value) is shape
