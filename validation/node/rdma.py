"""RDMA ports and their counters, from sysfs. Hardware and Soft-RoCE look the same there."""

from pathlib import Path

from validation.node.host import Host
from validation.node.measure import Json, Unmeasurable, measure

DEVICES = Path("/sys/class/infiniband")

COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
"""Standard port counters that stay at zero on a healthy link (Documentation/ABI/stable/sysfs-class-infiniband)."""

HARDWARE_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "rx_icrc_encapsulated",
    "roce_slow_restart",
    "icrc_error",
    "retry_exceeded_err",
)
"""Counters of mlx5 and rxe that tell of lost or damaged packets."""


@measure("rdma.ports", per="interface", source=str(DEVICES))
def ports(host: Host) -> dict[str, dict[str, Json]]:
    """`{device, port, state, physical_state, link_layer, rate_gbps, netdev}` of each RDMA port.

    Keyed by its network interface, or `mlx5_0/1` where it has none. Raises Unmeasurable where there is no RDMA device:
    no port is no healthy port.
    """
    folders = port_folders(DEVICES)
    links = {(each["ifname"], each["port"]): each.get("netdev") for each in host.run_json("rdma", "-j", "link", "show")}
    found: dict[str, dict[str, Json]] = {}
    for path in folders:
        device, number = path.parent.parent.name, int(path.name)
        netdev = links.get((device, number)) or ipoib(path.parent.parent)
        found[netdev or f"{device}/{number}"] = port(path, netdev)
    return found


def port_folders(devices: Path) -> list[Path]:
    """The folder of each port of each device. Raises Unmeasurable where there is none."""
    found = sorted(devices.glob("*/ports/*"))
    if not found:
        raise Unmeasurable("there is no RDMA device")
    return found


def port(path: Path, netdev: str | None) -> dict[str, Json]:
    """What sysfs says of a port: `4: ACTIVE`, `5: LinkUp`, `400 Gb/sec (4X NDR)`."""
    return {
        "device": path.parent.parent.name,
        "port": int(path.name),
        "state": _read(path / "state").partition(": ")[2],
        "physical_state": _read(path / "phys_state").partition(": ")[2],
        "link_layer": _read(path / "link_layer"),
        "rate_gbps": float(_read(path / "rate").split()[0]),
        "netdev": netdev,
    }


def ipoib(device: Path) -> str | None:
    """The network interface of an InfiniBand device, where it has exactly one."""
    names = [each.name for each in (device / "device" / "net").glob("*")]
    return names[0] if len(names) == 1 else None


@measure("rdma.errors", unit="events", per="counter", source=str(DEVICES))
def errors() -> dict[str, int]:
    """Error counters of each RDMA port since they were cleared, as `mlx5_0/1/symbol_error`.

    Counters that a device does not have are left out. Raises Unmeasurable where no port has any.
    """
    found = counters(DEVICES)
    if not found:
        raise Unmeasurable("no RDMA port has error counters")
    return found


def counters(devices: Path) -> dict[str, int]:
    """The counters below a folder of RDMA devices."""
    return {
        f"{path.parent.parent.name}/{path.name}/{name}": int(_read(path / folder / name))
        for path in port_folders(devices)
        for folder, names in (("counters", COUNTERS), ("hw_counters", HARDWARE_COUNTERS))
        for name in names
        if (path / folder / name).exists()
    }


def _read(path: Path) -> str:
    return path.read_text().strip()
