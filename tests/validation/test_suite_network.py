"""Interfaces, losses and bonds."""

import json
from pathlib import Path

from recorded_host import recorded, sysfs

from validation.node import network


def test_interfaces_as_ip_tells_them() -> None:
    found = {each["ifname"]: each for each in json.loads(recorded("ip_address.json")) if "ifname" in each}
    assert network.interface(found["mgmt0"], "10.77.1.14/24") | {"speed_gbps": None} == {
        "address": "10.77.1.14/24",
        "mtu": 1500,
        "state": "up",
        "speed_gbps": None,
    }
    assert network.interface(found["rail0"], "10.77.64.14/24")["state"] == "down"
    assert network.interface(None, "10.77.64.14/24")["state"] == "absent"
    other = network.interface(found["mgmt0"], "10.77.1.99/24")["address"]
    assert other == "10.77.1.14/24", "a wrong address is shown, not hidden"


FPING = """\
10.77.1.11 : xmt/rcv/%loss = 10/10/0%, min/avg/max = 0.060/0.079/0.116
10.77.1.12 : xmt/rcv/%loss = 10/9/10%, min/avg/max = 0.060/0.079/0.116
10.77.1.13 : xmt/rcv/%loss = 10/0/100%
ICMP Host Unreachable from 10.77.1.14 for ICMP Echo sent to 10.77.1.13
10.77.1.9  : xmt/rcv/%loss = 0/0/0%
"""


def test_losses_as_fping_tells_them() -> None:
    """A peer that nothing was sent to is lost: 0 of 0 is not 0 %."""
    assert network.lost(FPING) == {"10.77.1.11": 0.0, "10.77.1.12": 10.0, "10.77.1.13": 100.0, "10.77.1.9": 100.0}


def test_a_bonds_link_counts_once_it_carries_traffic(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path,
        {
            "stor0/bonding/mode": "802.3ad 4\n",
            "stor0/bonding/slaves": "p0 p1 p2\n",
            "stor0/bonding/ad_aggregator": "1\n",
            **{f"p{i}/bonding_slave/mii_status": text for i, text in enumerate(("up\n", "down\n", "up\n"))},
            **{f"p{i}/bonding_slave/ad_aggregator_id": text for i, text in enumerate(("1\n", "1\n", "2\n"))},
        },
    )
    assert network.bond(root, "stor0", ["p0", "p1", "p3"]) == {
        "mode": "802.3ad",
        "up": ["p0"],
        "down": ["p1", "p2", "p3"],
    }
