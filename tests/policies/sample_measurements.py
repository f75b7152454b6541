"""For each control: a measurement that passes on the sample node it applies to, and wrong ones that must not.

`right` and each of `wrong` are values in the shape that the node suite gives, or functions of the node's expectations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spec.plan import Expectations

Value = Any
Made = Callable[[Expectations], Value]


@dataclass(frozen=True)
class Example:
    right: Value | Made
    wrong: tuple[Value | Made, ...]

    def passing(self, spec: Expectations) -> Value:
        return _made(self.right, spec)

    def failing(self, spec: Expectations) -> tuple[Value, ...]:
        return tuple(_made(each, spec) for each in self.wrong)


def _made(value: Value | Made, spec: Expectations) -> Value:
    return value(spec) if callable(value) else value


def gpus(value: Value, **others: Value) -> dict[str, Value]:
    """Eight GPUs that answer the same, but for those named, as in `gpu_3=2`."""
    return {f"gpu-{i}": others.get(f"gpu_{i}", value) for i in range(8)}


def seven(value: Value) -> dict[str, Value]:
    return {f"gpu-{i}": value for i in range(7)}


def per_gpu(right: Value, *wrong: Value) -> Example:
    """Also wrong: one GPU that says nothing, one too many, and none at all."""
    nine = {f"gpu-{i}": right for i in range(9)}
    return Example(gpus(right), (*(gpus(right, gpu_3=each) for each in wrong), seven(right), nine, {}))


def changed(name: str, key: str, **fields: Value) -> Made:
    """An expectation as it is measured, but for some fields of one entry."""

    def make(spec: Expectations) -> Value:
        entries: Any = spec[name]
        return {**entries, key: {**entries[key], **fields}}

    return make


def without(name: str, key: str) -> Made:
    return lambda spec: {each: value for each, value in spec[name].items() if each != key}  # type: ignore[union-attr]


def put(name: str, key: str, value: Value) -> Made:
    return lambda spec: {**spec[name], key: value}  # type: ignore[dict-item]


def as_expected(name: str) -> Made:
    return lambda spec: spec[name]


def paths(value: Value) -> Made:
    return lambda spec: dict.fromkeys(spec["network.paths"], value)  # type: ignore[arg-type]


PCIE = {"generation": 5, "width": 16, "max_generation": 5, "max_width": 16}
ROWS = {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}
SSH = {
    "hostbasedauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "passwordauthentication": "no",
    "permitemptypasswords": "no",
    "permitrootlogin": "no",
    "permituserenvironment": "no",
    "pubkeyauthentication": "yes",
    "x11forwarding": "no",
    "port": "22",
}
SYSCTL = {
    "kernel.randomize_va_space": "2",
    "net.ipv4.ip_local_port_range": "50000 51000",
    "net.ipv4.neigh.default.gc_thresh1": "4096",
    "net.ipv4.neigh.default.gc_thresh2": "8192",
    "net.ipv4.neigh.default.gc_thresh3": "16384",
    "vm.zone_reclaim_mode": "1",
}

EXAMPLES: dict[str, Example] = {
    "gpu.count": Example(8, (7, 9, 0)),
    "gpu.model": per_gpu("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", ""),
    "gpu.memory": per_gpu(79.65, 39.5, 9.75, 0),
    "gpu.driver": Example("580.95.05", ("580.82.07", "580.95.050", "", "N/A")),
    "gpu.temperature": per_gpu(31, 92, 0, -40),
    "gpu.throttling": per_gpu([], ["hw_thermal_slowdown"], ["sw_power_cap", "hw_slowdown"], ["unknown 0x400"]),
    "gpu.power.limit": per_gpu(100.0, 71.4, 0),
    "gpu.ecc.enabled": per_gpu(True, False),
    "gpu.ecc.uncorrected": per_gpu(0, 1, 2, -1),
    "gpu.ecc.corrected": per_gpu(12, 1001, -1),
    "gpu.rows.remapping": per_gpu(ROWS, {**ROWS, "pending": True}, {**ROWS, "failure": True}),
    "gpu.rows.used": per_gpu(ROWS, {**ROWS, "uncorrectable": 600}),
    "gpu.pcie.width": per_gpu(PCIE, {**PCIE, "width": 8}, {**PCIE, "width": 0, "max_width": 0}),
    "gpu.pcie.generation": per_gpu(PCIE, {**PCIE, "generation": 3}),
    "gpu.nvlink.active": per_gpu(18, 17, 0),
    "gpu.nvlink.errors": per_gpu(0, 3),
    "gpu.fabric.registered": per_gpu("completed", "in progress", "not started", "completed, error 9"),
    "gpu.persistence": per_gpu(True, False),
    "gpu.mig": per_gpu(False, True),
    "gpu.processes": per_gpu(0, 1),
    "network.interfaces": Example(
        as_expected("network.links"),
        (
            changed("network.links", "stor0", state="down"),
            changed("network.links", "stor0", state="absent", address=None, mtu=None),
            changed("network.links", "stor0", mtu=1500),
            changed("network.links", "mgmt0", address="10.77.1.99/24"),
            without("network.links", "stor0"),
            {},
        ),
    ),
    "network.speed": Example(
        as_expected("network.speeds"),
        (
            changed("network.speeds", "stor0", speed_gbps=0.1),
            changed("network.speeds", "stor0", speed_gbps=None),
            without("network.speeds", "stor0"),
        ),
    ),
    "network.bonds": Example(
        as_expected("network.bonded"),
        (
            changed("network.bonded", "stor0", up=["stor0p0"], down=["stor0p1"]),
            changed("network.bonded", "stor0", mode="balance-rr"),
            {},
        ),
    ),
    "network.peers": Example(
        paths(0.0),
        (
            put("network.paths", "storage/storage-0", 5.0),
            paths(100.0),
            without("network.paths", "storage/storage-0"),
            {},
        ),
    ),
    "network.mtu": Example(
        as_expected("network.paths"),
        (put("network.paths", "storage/storage-0", 1500), paths(0), without("network.paths", "storage/storage-0")),
    ),
    "network.flaps": Example(
        lambda spec: dict.fromkeys(spec["network.ports"], 1),  # type: ignore[arg-type]
        (lambda spec: {**dict.fromkeys(spec["network.ports"], 1), "mgmt0": 400}, {}),  # type: ignore[arg-type]
    ),
    "network.errors": Example({"rail0/rx_errors": 0}, ({"rail0/rx_errors": 0, "rail0/rx_crc_errors": 50_000}, {})),
    "network.job_ports": Example(SYSCTL, ({**SYSCTL, "net.ipv4.ip_local_port_range": "32768 60999"},)),
    "rdma.ports": Example(
        as_expected("rdma.ports"),
        (
            changed("rdma.ports", "rail0", state="DOWN"),
            changed("rdma.ports", "rail0", rate_gbps=0.1),
            changed("rdma.ports", "rail0", link_layer="InfiniBand"),
            without("rdma.ports", "rail1"),
            {"mlx5_0/1": {"state": "ACTIVE", "link_layer": "Ethernet", "rate_gbps": 1}},
        ),
    ),
    "rdma.errors": Example({"mlx5_0/1/symbol_error": 0}, ({"mlx5_0/1/symbol_error": 70_000}, {})),
    "time.offset": Example(0.4, (100.1, 3_600_000.0, -1)),
    "time.synchronised": Example(True, (False,)),
    "time.source": Example("192.0.2.1", ("local", "10.77.1.12", "")),
    "filesystem.mounted": Example(True, (False,)),
    "filesystem.writable": Example(True, (False,)),
    "filesystem.room": Example(64.2, (9.9, 0, 101)),
    "filesystem.health": Example("HEALTH_WARN", ("HEALTH_ERR", "")),
    "filesystem.warnings": Example([], (["MDS_INSUFFICIENT_STANDBY"],)),
    "filesystem.quorum": Example(3, (2, 0)),
    "filesystem.active": Example(1, (0, 2)),
    "filesystem.standby": Example(1, (0,)),
    "filesystem.disks": Example(0, (1,)),
    "host.name": Example(as_expected("node.name"), ("localhost", "")),
    "host.cpus": Example(128, (0,)),
    "host.governor": Example(["performance"], (["performance", "powersave"],)),
    "host.memory.size": Example(1.95, (1.0, 0)),
    "host.memory.available": Example(91.3, (4.2, 0, 140)),
    "host.memory.uncorrected": Example({"mc0": 0, "mc1": 0}, ({"mc0": 0, "mc1": 1}, {})),
    "host.swap": Example(0, (8.0,)),
    "host.load": Example(0.02, (40.0,)),
    "host.disk.room": Example({"/": 40.0, "/tmp": 99.0}, ({"/": 40.0, "/tmp": 0.0}, {})),  # noqa: S108
    "host.disk.inodes": Example({"/": 80.0}, ({"/": 0.1}, {})),
    "host.limits.memlock": Example("unlimited", (8_388_608, 65_536)),
    "host.limits.nofile": Example(1_048_576, (1024,)),
    "firewall.policy": Example("drop", ("accept", "absent")),
    "firewall.closed": Example(
        as_expected("ports.open"),
        (lambda spec: [*spec["ports.open"], "tcp/8080"], lambda spec: [*spec["ports.open"], "any"]),  # type: ignore[misc]
    ),
    "firewall.open": Example(as_expected("ports.open"), (lambda spec: spec["ports.open"][1:], [])),  # type: ignore[index,call-overload]
    "firewall.mac": Example("apparmor", ("disabled", "selinux permissive")),
    "ports.unexpected": Example([], (["tcp/8080@0.0.0.0 (python3)"],)),
    "pins.packages": Example(
        as_expected("pins.packages"),
        (
            put("pins.packages", "chrony", "4.3-2"),
            put("pins.packages", "chrony", None),
            without("pins.packages", "chrony"),
            {},
        ),
    ),
    "pins.held": Example(as_expected("pins.held"), (lambda spec: spec["pins.held"][1:], [])),  # type: ignore[index,call-overload]
    "pins.whole": Example([], (["nvidia-kernel-open-dkms"],)),
    "kernel.version": Example("6.8.0", ("6.8.0-60-generic", "6.1.0-31-amd64")),
    "kernel.settings": Example(SYSCTL, ({**SYSCTL, "vm.zone_reclaim_mode": "0"},)),
    "kernel.uptime": Example(3600.5, (40_000_000.0, -1)),
    "kernel.xids": Example(
        [{"gpu": "0000:3b:00", "xid": 31, "count": 2}],
        (
            [{"gpu": "0000:3b:00", "xid": 79, "count": 1}],
            [{"gpu": "0000:3b:00", "xid": 31, "count": 2}, {"gpu": "0000:5e:00", "xid": 119, "count": 1}],
            [{"gpu": "0000:3b:00", "xid": 9999, "count": 1}],
        ),
    ),
    "kernel.oom": Example(0, (1,)),
    "kernel.io_errors": Example(0, (12,)),
    "kernel.link_errors": Example(4, (900,)),
    "kernel.hung_tasks": Example(0, (1,)),
    "kernel.machine_checks": Example(1, (4000,)),
    "kernel.pcie_errors": Example(3, (100_000,)),
    "users.login": Example(["muster"], (["muster", "test"], ["root"])),
    "users.sudo": Example(["muster", "root"], (["ALL", "root"],)),
    "users.passwords": Example([], (["guest"],)),
    "users.ssh": Example(SSH, ({**SSH, "permitrootlogin": "yes"}, {**SSH, "passwordauthentication": "yes"}, {})),
    "services.failed": Example([], (["ceph-osd@0.service"],)),
    "services.active": Example(
        as_expected("services.active"),
        (put("services.active", "chrony.service", "inactive"), without("services.active", "chrony.service"), {}),
    ),
    "slurm.node": Example(
        {"state": "IDLE+DRAIN", "reason": "muster: no certificate", "gres": "gpu:8"},
        tuple(
            {"state": state, "reason": None, "gres": "gpu:8"}
            for state in ("DOWN*+DRAIN", "IDLE*", "UNKNOWN", "DOWN+NOT_RESPONDING", "IDLE+DRAIN+INVALID_REG", "")
        ),
    ),
}
