"""The node's own firewall (nftables) and mandatory access control."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from validation.node.host import Host
from validation.node.measure import Json, measure

TABLE = "muster"
"""The table that the firewall role writes. Other programs have tables of their own; a drop in any of them is final."""


@measure("firewall.policy", source="nft list ruleset")
def policy(host: Host) -> str:
    """What happens to a packet that no rule of Muster's table lets in: `drop`, `accept`; `absent` without a table."""
    return input_policy(host.once(ruleset))


@measure("firewall.open_ports", source="nft list ruleset")
def open_ports(host: Host) -> list[str]:
    """What Muster's table lets in, as `tcp/22`, `tcp/6800-7300`; `any` for a rule that lets in whatever comes."""
    return let_in(host.once(ruleset))


@measure("firewall.rules_digest", source="nft list ruleset")
def rules_digest(host: Host) -> str:
    """SHA-256 of Muster's table without counters and handles: the same as long as nobody changes a rule."""
    return digest(host.once(ruleset))


def ruleset(host: Host) -> list[Json]:
    """The objects of the ruleset, as `nft -j` lists them."""
    objects: list[Json] = host.run_json("nft", "-j", "list", "ruleset")["nftables"]
    return objects


def input_policy(objects: Sequence[Json]) -> str:
    """The policy of the table's input chains: `drop` where one drops, for a drop is final, of IPv4 and of IPv6."""
    chains = [chain for chain in _of(objects, "chain") if chain.get("hook") == "input"]
    if not chains:
        return "absent"
    dropped = {each for chain in chains if chain.get("policy") == "drop" for each in _COVERS.get(_family(chain), ())}
    return "drop" if dropped == {"ip", "ip6"} else "accept"


_COVERS = {"inet": ("ip", "ip6"), "ip": ("ip",), "ip6": ("ip6",)}
"""Whose packets the chains of a table of this family see."""


def _family(thing: Mapping[str, Json]) -> str:
    return str(thing.get("family", "inet"))


def let_in(objects: Sequence[Json]) -> list[str]:
    """What the input chains, and the chains that they jump to, accept: `any` where nothing is dropped at the end.

    Tables of one name and several families are apart: chains and sets of one are unknown to the other.
    """
    found = set() if input_policy(objects) == "drop" else {"any"}
    families = {_family(chain) for chain in _of(objects, "chain") if chain.get("hook") == "input"}
    for family in families:
        found |= _let_in([each for each in objects if all(_family(thing) == family for thing in each.values())])
    return sorted(found)


def _let_in(objects: Sequence[Json]) -> set[str]:
    sets = {each["name"]: each.get("elem", []) for kind in ("set", "map") for each in _of(objects, kind)}
    chains = {each["name"] for each in _of(objects, "chain") if each.get("hook") == "input"}
    rules = list(_of(objects, "rule"))
    found: set[str] = set()
    seen: set[str] = set()
    while chains - seen:
        name = min(chains - seen)
        seen.add(name)
        for rule in (each for each in rules if each["chain"] == name):
            for statement in rule["expr"]:
                verdicts = [statement, *(verdict for _, verdict in _pairs(statement, sets))]
                chains |= {each[way]["target"] for each in verdicts for way in ("jump", "goto") if way in each}
            if any("accept" in statement for statement in rule["expr"]):
                found.update(_ports(rule["expr"], sets))
            for statement in rule["expr"]:
                found.update(_mapped(statement, sets))
    return found


def digest(objects: Sequence[Json]) -> str:
    """Of the table's tables, chains, sets and rules in their order."""
    kinds = ("table", "chain", "set", "map", "rule")
    kept = [[kind, _stable(each)] for kind in kinds for each in _of(objects, kind)]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _of(objects: Sequence[Json], kind: str) -> Iterator[Json]:
    for each in objects:
        if kind in each and TABLE in (each[kind].get("table"), each[kind]["name"] if kind == "table" else None):
            yield each[kind]


def _stable(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _stable(each) for key, each in value.items() if key not in ("handle", "counter")}
    return [_stable(each) for each in value] if isinstance(value, list) else value


def _ports(statements: Sequence[Json], sets: Mapping[str, Json]) -> Iterator[str]:
    """The ports of an accepting rule. Nothing for answers, the loopback interface and ICMP, which are no services."""
    matches = [each["match"] for each in statements if "match" in each]
    for match in matches:
        left, right = match["left"], match["right"]
        payload = left.get("payload", {})
        if payload.get("field") == "dport":
            protocols = [payload["protocol"]] if payload["protocol"] != "th" else list(_protocols(matches)) or ["any"]
            for span in _spans(right, sets) if match["op"] in ("==", "in") else ["any"]:
                yield from (f"{protocol}/{span}" for protocol in protocols)
            return
    if not any(map(_harmless, matches)):
        yield "any"


def _pairs(statement: Json, sets: Mapping[str, Json]) -> list[tuple[Json, Json]]:
    """What a verdict map matches, and what becomes of it; the map may have a name. Nothing for other statements."""
    if "vmap" not in statement:
        return []
    data = statement["vmap"]["data"]
    return [(match, verdict) for match, verdict in (data["set"] if isinstance(data, Mapping) else sets[data[1:]])]


def _mapped(statement: Json, sets: Mapping[str, Json]) -> Iterator[str]:
    """The ports that a verdict map accepts, as in `tcp dport vmap { 22 : accept }`."""
    accepted = [match for match, verdict in _pairs(statement, sets) if "accept" in verdict]
    if not accepted:
        return
    key = statement["vmap"]["key"]
    payload = key.get("payload", {}) if isinstance(key, Mapping) else {}
    if payload.get("field") == "dport":
        for match in accepted:
            yield from (f"{payload['protocol']}/{span}" for span in _spans(match, sets))
    elif not _harmless({"left": key, "right": {"set": accepted}, "op": "=="}):
        yield "any"


def _harmless(match: Mapping[str, Json]) -> bool:
    left, right = match["left"], match["right"]
    if match["op"] not in ("==", "in"):
        return False
    values = set(map(str, right["set"] if isinstance(right, Mapping) and "set" in right else _listed(right)))
    if left.get("ct", {}).get("key") == "state":
        return values <= {"established", "related"}
    key = left.get("meta", {}).get("key")
    if key in ("iifname", "iif"):
        return values == {"lo"}
    payload = left.get("payload", {})
    if payload.get("protocol") in ("icmp", "icmpv6"):
        return True
    if key in ("l4proto", "protocol") or payload.get("field") in ("protocol", "nexthdr"):
        return values <= {"icmp", "icmpv6", "ipv6-icmp", "1", "58"}
    return False


def _protocols(matches: Sequence[Json]) -> Iterator[str]:
    for match in matches:
        if match["left"].get("meta", {}).get("key") == "l4proto":
            right = match["right"]
            yield from map(str, right["set"] if isinstance(right, Mapping) and "set" in right else _listed(right))


def _spans(value: Json, sets: Mapping[str, Json]) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("@"):
        for each in sets[value.removeprefix("@")]:
            yield from _spans(each, sets)
    elif isinstance(value, Mapping) and "set" in value:
        for each in value["set"]:
            yield from _spans(each, sets)
    elif isinstance(value, Mapping) and "range" in value:
        yield "-".join(map(str, value["range"]))
    elif isinstance(value, Mapping) and "elem" in value:
        yield from _spans(value["elem"]["val"], sets)
    else:
        yield str(value)


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


@measure("mac.state", source="/sys")
def mac_state() -> str:
    """Mandatory access control: `selinux enforcing`, `selinux permissive`, `apparmor`, or `disabled`."""
    selinux = Path("/sys/fs/selinux/enforce")
    if selinux.exists():
        return "selinux enforcing" if selinux.read_text().strip() == "1" else "selinux permissive"
    apparmor = Path("/sys/module/apparmor/parameters/enabled")
    return "apparmor" if apparmor.exists() and apparmor.read_text().strip() == "Y" else "disabled"
