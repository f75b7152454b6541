"""Interfaces, bonds, and whether every peer answers on every plane at the size that the spec declares."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from validation.node.host import Host
from validation.node.measure import Json, Unmeasurable, measure

INTERFACES = Path("/sys/class/net")

HEADERS = 28
"""Bytes of the IPv4 and ICMP headers that come on top of a ping's payload."""

SMALLER = (4200, 1500, 1280, 84)
"""Sizes tried where the declared one is lost, to tell a wrong MTU from a dead path. Bytes, headers included."""

ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")

BATCH = 2000
"""Peers that one fping asks: its command line has a limit."""


@measure("network.interfaces", per="interface", source="ip address")
def interfaces(host: Host) -> dict[str, dict[str, Json]]:
    """`{address, mtu, state, speed_gbps}` of each interface that the spec declares for the node.

    `state` is `up`, `down` or `absent`; the address is written `10.77.1.11/24`, the first where there are several
    unless the declared one is among them.
    """
    declared = host.expected("network.interfaces", dict)
    found = host.once(addresses)
    return {name: interface(found.get(name), wanted.get("address")) for name, wanted in declared.items()}


def addresses(host: Host) -> dict[str, Json]:
    """What `ip -j address` tells of each interface, by name."""
    return {each["ifname"]: each for each in host.run_json("ip", "-j", "address", "show") if "ifname" in each}


def interface(told: Mapping[str, Json] | None, wanted: str | None) -> dict[str, Json]:
    """One interface's facts from its entry in `ip -j address`."""
    if told is None:
        return {"address": None, "mtu": None, "state": "absent", "speed_gbps": None}
    found = [f"{each['local']}/{each['prefixlen']}" for each in told.get("addr_info", []) if each["family"] == "inet"]
    carrier = told["operstate"] == "UP" or (told["operstate"] == "UNKNOWN" and "LOWER_UP" in told["flags"])
    return {
        "address": wanted if wanted in found else next(iter(found), None),
        "mtu": told["mtu"],
        "state": "up" if carrier else "down",
        "speed_gbps": _speed(told["ifname"]),
    }


def _speed(name: str) -> float | None:
    try:
        megabits = int((INTERFACES / name / "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits / 1000 if megabits > 0 else None


@measure("network.bonds", per="bond", source=str(INTERFACES))
def bonds(host: Host) -> dict[str, dict[str, Json]]:
    """`{mode, up, down}` of each bond that the spec declares: its links that carry traffic and those that do not.

    With LACP a link carries traffic where it has joined the bond's active aggregator. A declared link that is not in
    the bond is down.
    """
    declared = host.expected("network.bonds", dict)
    if not declared:
        raise Unmeasurable("the spec declares no bond on this node")
    return {name: bond(INTERFACES, name, links) for name, links in declared.items()}


def bond(root: Path, name: str, links: Iterable[str]) -> dict[str, Json]:
    """One bond as sysfs below `root` shows it. Raises FileNotFoundError where it is none."""
    folder = root / name / "bonding"
    mode = (folder / "mode").read_text().split()[0]
    members = (folder / "slaves").read_text().split()
    up = []
    for each in members:
        state = root / each / "bonding_slave"
        carries = (state / "mii_status").read_text().strip() == "up"
        if mode == "802.3ad":
            active = (folder / "ad_aggregator").read_text().strip()
            carries = carries and (state / "ad_aggregator_id").read_text().strip() == active
        if carries:
            up.append(each)
    return {"mode": mode, "up": sorted(up), "down": sorted({*members, *links} - set(up))}


@measure("network.link_flaps", unit="times", per="interface", source=str(INTERFACES))
def link_flaps(host: Host) -> dict[str, int]:
    """How often the carrier of each declared interface, and of each link of a bond, came back after it was lost."""
    ups = {name: int(host.read(INTERFACES / name / "carrier_up_count")) for name in _ports(host)}
    return {name: max(0, count - 1) for name, count in ups.items()}


@measure("network.errors", unit="packets", per="counter", source=str(INTERFACES))
def errors(host: Host) -> dict[str, int]:
    """Packets that each declared interface, and each link of a bond, received or sent damaged, as `rail0/rx_errors`."""
    return {
        f"{name}/{counter}": int(host.read(INTERFACES / name / "statistics" / counter))
        for name in _ports(host)
        for counter in ERRORS
    }


def _ports(host: Host) -> list[str]:
    bonds = host.expectations.get("network.bonds", {})
    return sorted({*host.expected("network.interfaces", dict), *(link for links in bonds.values() for link in links)})


@measure("network.peers_lost", unit="%", per="peer", source="fping -M", limit_s=60)
def peers_lost(host: Host) -> dict[str, float]:
    """Packets lost to each peer on each plane, as `rail-0/gpu-1`: full-sized, never fragmented, sent through the
    plane's own interface.

    A peer that loses any is asked again with more packets, and the second answer counts: one late packet is no fault.
    """
    return host.once(_losses)


@measure("network.mtu_path", unit="bytes", per="peer", source="fping -M", limit_s=60)
def mtu_path(host: Host) -> dict[str, int]:
    """The largest packet that each peer on each plane answered: the declared MTU, a smaller size where that is lost,
    0 where it answers none."""
    declared = {plane: mtu for plane, (_, mtu) in _planes(host).items()}
    found = {key: declared[key.split("/")[0]] if lost < 100 else 0 for key, lost in host.once(_losses).items()}
    for size in SMALLER:
        silent = [key for key, answered in found.items() if not answered and size < declared[key.split("/")[0]]]
        answers = _ping(host, silent, size=size, packets=2) if silent else {}
        found |= {key: size for key, lost in answers.items() if lost < 100}
    return found


def _losses(host: Host) -> dict[str, float]:
    keys = [f"{plane}/{peer}" for plane, peers in host.expected("network.peers", dict).items() for peer in peers]
    if not keys:
        raise Unmeasurable("this node has no peers")
    few = min(10, max(3, 640 // len(keys)))
    found = _ping(host, keys, packets=few)
    again = [key for key, lost in found.items() if 0 < lost < 100]
    return found | (_ping(host, again, packets=20) if again else {})


def _planes(host: Host) -> dict[str, tuple[str, int]]:
    """The interface and the declared MTU of each plane."""
    return {each["plane"]: (name, each["mtu"]) for name, each in host.expected("network.interfaces", dict).items()}


def _ping(host: Host, keys: Iterable[str], packets: int, size: int | None = None) -> dict[str, float]:
    """Percent lost of each `plane/peer`, all planes at once. `size` in bytes is the declared MTU by default."""
    peers, planes, present = host.expected("network.peers", dict), _planes(host), host.once(addresses)
    wanted: dict[str, dict[str, str]] = {}
    for key in keys:
        plane, _, peer = key.partition("/")
        wanted.setdefault(plane, {})[peers[plane][peer]] = key
    rounds = [
        (plane, dict(list(by_address.items())[start : start + BATCH]))
        for plane, by_address in wanted.items()
        for start in range(0, len(by_address), BATCH)
    ]

    def ask(item: tuple[str, dict[str, str]]) -> dict[str, float]:
        plane, by_address = item
        name, mtu = planes[plane]
        if name not in present:
            return dict.fromkeys(by_address.values(), 100.0)
        options = ("-M", "-q", "-c", str(packets), "-b", str((size or mtu) - HEADERS))
        pace = ("-i", "1", "-p", "50", "-t", "1000")
        told = host.ask("fping", *options, *pace, "-I", name, *by_address).stderr
        losses = lost(told)
        missing = by_address.keys() - losses.keys()
        if missing:
            raise RuntimeError(f"fping tells nothing of {min(missing)} on {name}: {told.strip()[:300]}")
        return {key: losses[address] for address, key in by_address.items()}

    return {key: value for answer in host.together(ask, rounds) for key, value in answer.items()}


def lost(told: str) -> dict[str, float]:
    """Percent lost by address, from `fping -q -c`: `10.0.0.1 : xmt/rcv/%loss = 3/2/33%, min/avg/max = …`."""
    lines = re.findall(r"^(\S+)\s*: xmt/rcv/%loss = (\d+)/(\d+)/\d+%", told, re.MULTILINE)
    return {address: round(100 * (1 - int(got) / int(sent)), 1) if int(sent) else 100.0 for address, sent, got in lines}
