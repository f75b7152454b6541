"""Ports of the network on this machine and their error counters, from sysfs: read twice, they tell what goes on now."""

from collections.abc import Mapping
from pathlib import Path

from validation.diagnose.live.snapshot import Link
from validation.node.network import INTERFACES
from validation.node.rdma import COUNTERS, DEVICES, HARDWARE_COUNTERS

ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "tx_carrier_errors", "tx_aborted_errors")
"""Of an interface. Dropped packets are left out: they count what nobody asked for too (multicast, unknown VLANs)."""
RETRANSMITTED = "tcp_segments_sent_again"
"""Of the whole machine, as one link named `tcp`: it is the machine's only count of them."""
MANY_AGAIN = 0.02
"""Share of segments that are sent again from which on it tells: below it is the usual loss of a busy network."""
LEAST_AGAIN = 100

Sample = Mapping[str, Link]


def sample(interfaces: Path = INTERFACES, devices: Path = DEVICES) -> dict[str, Link]:
    """All physical interfaces and RDMA ports, with the counters that they have. Empty where there is none."""
    found: dict[str, Link] = {}
    for folder in _folders(interfaces):
        if (folder / "device").exists():  # no bridge, tunnel or loopback
            counters = {name: _count(folder / "statistics" / name) for name in ERRORS}
            counters["carrier_down_count"] = _count(folder / "carrier_down_count")
            found[folder.name] = Link(
                name=folder.name,
                kind="ethernet",
                up=_text(folder / "operstate") in ("up", "unknown"),
                was_up=(_count(folder / "carrier_up_count") or 0) > 0,
                counters={name: value for name, value in counters.items() if value},
            )
    for device in _folders(devices):
        for port in _folders(device / "ports"):
            rdma = {
                name: _count(port / where / name)
                for where, names in (("counters", COUNTERS), ("hw_counters", HARDWARE_COUNTERS))
                for name in names
            }
            name = f"{device.name}/{port.name}"
            downs = rdma.get("link_downed") or 0
            found[name] = Link(
                name=name,
                kind="rdma",
                up="ACTIVE" in _text(port / "state"),
                was_up="ACTIVE" in _text(port / "state") or downs > 0,
                counters={name: value for name, value in rdma.items() if value},
            )
    return found


def between(before: Sample, after: Sample) -> tuple[Link, ...]:
    """The later sample, with what rose. Pure. A counter that fell was cleared, and says nothing."""
    made = []
    for name, link in after.items():
        earlier = before.get(name)
        rises = (
            {
                counter: value - earlier.counters.get(counter, 0)
                for counter, value in link.counters.items()
                if value > earlier.counters.get(counter, 0)
            }
            if earlier is not None
            else {}
        )
        made.append(link.model_copy(update={"rises": rises}))
    return tuple(made)


def segments(snmp: Path = Path("/proc/net/snmp")) -> tuple[int, int] | None:
    """TCP segments sent and sent again since the machine started. None where it is not told."""
    rows = [each.split() for each in _text(snmp).splitlines() if each.startswith("Tcp:")]
    if len(rows) != 2:
        return None
    named = dict(zip(rows[0], rows[1], strict=False))
    try:
        return int(named["OutSegs"]), int(named["RetransSegs"])
    except (KeyError, ValueError):
        return None


def again(before: tuple[int, int] | None, after: tuple[int, int] | None) -> tuple[Link, ...]:
    """A link named `tcp` where more segments were sent again than is usual. Pure."""
    if before is None or after is None:
        return ()
    sent, repeated = after[0] - before[0], after[1] - before[1]
    if repeated < LEAST_AGAIN or repeated < MANY_AGAIN * max(sent, 1):
        return ()
    return (Link(name="tcp", kind="ethernet", up=True, rises={RETRANSMITTED: repeated}),)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:128]
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(1 << 14).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _count(path: Path) -> int | None:
    told = _text(path)
    return int(told) if told.isdecimal() and len(told) < 19 else None
