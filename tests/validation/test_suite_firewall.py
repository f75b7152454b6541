"""What the kernel's rules let in."""

import json
from typing import Any

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
