"""Interfaces that are not as wanted are found, whatever it is that differs."""

import importlib.util
import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_inventories import ROLES

_spec = importlib.util.spec_from_file_location("interfaces", ROLES / "network" / "filter_plugins" / "interfaces.py")
assert _spec
assert _spec.loader
interfaces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interfaces)


def wanted(name: str, number: int, links: tuple[str, ...] = (), vlan: int | None = None) -> dict[str, Any]:
    return {"name": name, "address": f"10.0.{number}.11/24", "mtu": 9000, "links": list(links), "vlan": vlan}


WANTED = [wanted("mgmt0", 1), wanted("stor0", 2, ("stor0p0", "stor0p1")), wanted("rail0", 3)]


def link(name: str, address: str | None = None, master: str | None = None) -> dict[str, Any]:
    """As `ip -json address show` has it; recorded from a lab node and cut to what matters."""
    found: dict[str, Any] = {"ifname": name, "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], "mtu": 9000}
    if master:
        found["master"] = master
    local, _, length = (address or "").partition("/")
    own = [{"family": "inet", "local": local, "prefixlen": int(length), "scope": "global"}] if address else []
    return found | {"addr_info": [*own, {"family": "inet6", "local": "fe80::1", "prefixlen": 64}]}


def right() -> list[dict[str, Any]]:
    carriers = [link(each["name"], each["address"]) for each in WANTED]
    return [link("lo", "127.0.0.1/8"), *carriers, *(link(port, master="stor0") for port in ("stor0p0", "stor0p1"))]


def test_what_is_right_does_not_drift() -> None:
    assert interfaces.network_drift(WANTED, right()) == []


@pytest.mark.parametrize("name", ["mgmt0", "stor0", "rail0", "stor0p0", "stor0p1"])
def test_an_interface_that_is_down_or_gone_drifts_and_no_other(name: str) -> None:
    down = deepcopy(right())
    for each in down:
        if each["ifname"] == name:
            each["flags"].remove("UP")
    assert interfaces.network_drift(WANTED, down) == [name]
    assert interfaces.network_drift(WANTED, [each for each in right() if each["ifname"] != name]) == [name]


@given(mtu=st.integers(min_value=68, max_value=9216).filter(lambda mtu: mtu != 9000))
def test_any_other_mtu_drifts(mtu: int) -> None:
    found = [{**each, "mtu": mtu} if each["ifname"] == "rail0" else each for each in right()]
    assert interfaces.network_drift(WANTED, found) == ["rail0"]


@pytest.mark.parametrize("address", ["10.0.3.12/24", "10.0.3.11/16", None])
def test_any_other_address_drifts(address: str | None) -> None:
    found = [link("rail0", address) if each["ifname"] == "rail0" else each for each in right()]
    assert interfaces.network_drift(WANTED, found) == ["rail0"]


def test_a_port_in_another_bond_drifts() -> None:
    found = [link("stor0p1", master="other") if each["ifname"] == "stor0p1" else each for each in right()]
    assert interfaces.network_drift(WANTED, found) == ["stor0p1"]


@pytest.mark.parametrize(
    ("interface", "below"),
    [
        (wanted("stor0", 2), "stor0"),
        (wanted("stor0", 2, ("a", "b")), "stor0"),
        (wanted("stor0", 2, (), 20), "stor0p0"),
        (wanted("stor0", 2, ("a", "b"), 20), "bond-stor0"),
    ],
)
def test_a_vlan_has_its_device_below_it(interface: dict[str, Any], below: str) -> None:
    assert interfaces.network_lower(interface) == below


def test_nothing_found_is_never_in_order() -> None:
    assert interfaces.network_drift(WANTED, json.loads("[]")) == ["mgmt0", "rail0", "stor0", "stor0p0", "stor0p1"]


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ({"broadcast": "10.0.3.255", "label": "rail0"}, {}),
        ({"label": "rail0"}, {"Broadcast": "no"}),
        ({"broadcast": "10.0.3.0", "label": "rail0"}, {"Broadcast": "10.0.3.0"}),
        ({"broadcast": "10.0.3.255", "label": "rail0:1"}, {"Label": "rail0:1"}),
        ({"broadcast": "10.0.3.255", "label": "rail0", "scope": "link"}, {"Scope": "link"}),
    ],
)
def test_an_address_that_is_there_is_taken_over_as_it_is(more: dict[str, str], settings: dict[str, str]) -> None:
    rail0 = link("rail0", "10.0.3.11/24")
    rail0["addr_info"][0] |= more
    assert interfaces.network_as_found([link("lo", "127.0.0.1/8"), rail0], WANTED[2]) == settings


def test_an_address_that_is_yet_to_come_is_an_ordinary_one() -> None:
    assert interfaces.network_as_found([link("rail0", "10.0.3.12/24"), link("rail1", "10.0.3.11/24")], WANTED[2]) == {}
