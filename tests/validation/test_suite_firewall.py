"""What the kernel's rules let in."""

import json
from typing import Any

import pytest
from recorded_host import recorded

from validation.node import firewall


def nft(name: str) -> list[Any]:
    objects: list[Any] = json.loads(recorded(name))["nftables"]
    return objects


def test_a_closed_firewall_lets_in_what_its_rules_name() -> None:
    objects = nft("nft_lab_storage.json")
    assert firewall.input_policy(objects) == "drop"
    assert firewall.let_in(objects) == ["tcp/22", "tcp/3300", "tcp/6789", "tcp/6800-7300", "udp/123"]


def test_a_loose_firewall_shows_every_hole() -> None:
    """Named sets, jumps, verdict maps, both protocols at once, negations, whole interfaces; not others' tables."""
    objects = nft("nft_loose.json")
    assert firewall.input_policy(objects) == "accept"
    found = firewall.let_in(objects)
    assert {"any", "tcp/22", "tcp/8000-8010", "tcp/6817", "tcp/53", "udp/53", "udp/123", "tcp/any"} == set(found)


def test_a_rule_that_takes_a_whole_interface_is_a_hole_in_a_closed_firewall_too() -> None:
    objects = [
        {"table": {"family": "inet", "name": "muster"}},
        {"chain": {"table": "muster", "name": "input", "hook": "input", "policy": "drop"}},
        {
            "rule": {
                "table": "muster",
                "chain": "input",
                "expr": [
                    {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "rail0"}},
                    {"accept": None},
                ],
            }
        },
    ]
    assert firewall.let_in(objects) == ["any"]


def test_what_is_let_in_through_named_verdict_maps_and_the_chains_that_maps_jump_to_is_seen() -> None:
    """A named map of ports; chains reached through a map, named or not, by jump and goto; not a chain nobody uses."""
    objects = nft("nft_verdict_maps.json")
    assert firewall.input_policy(objects) == "drop"
    assert firewall.let_in(objects) == ["tcp/22", "tcp/3300", "tcp/7000", "tcp/8443", "tcp/9100"]


def of_family(family: str, policy: str, port: int) -> list[Any]:
    """A table of Muster's name that lets in the ports of its own set."""
    own = {"family": family, "table": "muster"}
    match = {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": "@ports"}
    return [
        {"table": {"family": family, "name": "muster"}},
        {"set": own | {"name": "ports", "elem": [port]}},
        {"chain": own | {"name": "input", "hook": "input", "policy": policy}},
        {"rule": own | {"chain": "input", "expr": [{"match": match}, {"accept": None}]}},
    ]


@pytest.mark.parametrize(
    ("tables", "policy"),
    [
        ({"inet": "drop"}, "drop"),
        ({"ip": "drop"}, "accept"),
        ({"ip6": "drop"}, "accept"),
        ({"ip": "drop", "ip6": "accept"}, "accept"),
        ({"ip": "drop", "ip6": "drop"}, "drop"),
        ({"inet": "accept", "ip": "drop"}, "accept"),
        ({"arp": "drop"}, "accept"),
    ],
)
def test_a_firewall_is_closed_only_where_it_drops_both_ipv4_and_ipv6(tables: dict[str, str], policy: str) -> None:
    objects = [each for i, (family, own) in enumerate(tables.items()) for each in of_family(family, own, 1001 + i)]
    assert firewall.input_policy(objects) == policy
    ports = {f"tcp/{1001 + i}" for i in range(len(tables))}
    assert set(firewall.let_in(objects)) == ports | ({"any"} if policy == "accept" else set()), "no set hides another"


def test_no_firewall_is_absent_and_lets_in_anything() -> None:
    assert firewall.input_policy(nft("nft_empty.json")) == "absent"
    assert firewall.let_in(nft("nft_empty.json")) == ["any"]


def test_counters_and_handles_do_not_change_a_ruleset_but_rules_do() -> None:
    objects = nft("nft_lab_storage.json")
    other = json.loads(json.dumps(objects))
    for each in other:
        for thing in each.values():
            thing["handle"] = 4711
    for rule in (each["rule"] for each in other if "rule" in each):
        for statement in rule["expr"]:
            if isinstance(statement.get("counter"), dict):
                statement["counter"] = {"packets": 5, "bytes": 999}
    assert firewall.digest(other) == firewall.digest(objects)
    rules = [each for each in other if "rule" in each]
    rules[3]["rule"]["expr"].pop()
    assert firewall.digest(other) != firewall.digest(objects)
