"""From the interfaces that a node shall have: the files that describe them, and what differs from those that it has."""

from ipaddress import ip_interface
from typing import Any


def network_drift(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """The names, sorted, of interfaces and of ports below bonds that are not as wanted.

    Args: wanted as `muster_interfaces`; found as `ip -json address show` prints it.
    """
    there = {link["ifname"]: link for link in found}
    drifted = {each["name"] for each in wanted if not _carries(there.get(each["name"]), each["address"], each["mtu"])}
    for each in wanted:
        bond = network_lower(each)
        drifted |= {port for port in each.get("links") or () if not _enslaved(there.get(port), bond)}
    return sorted(drifted)


def network_as_found(found: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, str]:
    """Settings of networkd's `[Address]` with which it takes over the address of an interface that has it already.

    Where they differ from what is there, networkd 252 asks the kernel to change them, which it does not do for an
    address that exists, and asks again: 65,535 times, seconds of a processor, before it calls the interface failed.
    """
    for link in found:
        for each in link["addr_info"] if link["ifname"] == wanted["name"] else []:
            if each["family"] == "inet" and f"{each['local']}/{each['prefixlen']}" == wanted["address"]:
                usual = str(ip_interface(wanted["address"]).network.broadcast_address)
                label = each.get("label", link["ifname"])
                settings = {"Broadcast": each.get("broadcast", "no"), "Label": label, "Scope": each["scope"]}
                ordinary = {"Broadcast": usual, "Label": wanted["name"], "Scope": "global"}
                return {name: value for name, value in settings.items() if value != ordinary[name]}
    return {}


def network_files(wanted: list[dict[str, Any]], macs: dict[str, str]) -> list[dict[str, Any]]:
    """systemd-networkd's files: each has a `device`, a `kind` (link, netdev, network), the role's `template` for it.

    Args: wanted as `muster_interfaces`; macs are hardware addresses by the port that shall have the name.
    """
    files = [_file(port, "link", "port", mac=mac) for port, mac in macs.items()]
    for each in wanted:
        below = network_lower(each)
        if each.get("links"):
            files.append(_file(below, "netdev", "bond", interface=each))
            files += [_file(port, "network", "port", interface=each) for port in each["links"]]
        if each.get("vlan"):
            files.append(_file(each["name"], "netdev", "vlan", interface=each))
            files.append(_file(below, "network", "lower", interface=each))
        files.append(_file(each["name"], "network", "address", interface=each))
    return files


def _file(device: str, kind: str, template: str, **more: Any) -> dict[str, Any]:
    return {"device": device, "kind": kind, "template": template, **more}


def network_lower(interface: dict[str, Any]) -> str:
    """The device that a VLAN is on: a bond or a port. The interface itself where there is no VLAN."""
    if not interface.get("vlan"):
        return interface["name"]
    return f"bond-{interface['name']}" if interface.get("links") else f"{interface['name']}p0"


def _carries(link: dict[str, Any] | None, address: str, mtu: int) -> bool:
    if link is None or link["mtu"] != mtu or "UP" not in link["flags"]:
        return False
    return address in {
        f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"] if each["family"] == "inet"
    }


def _enslaved(link: dict[str, Any] | None, bond: str) -> bool:
    return link is not None and link.get("master") == bond and "UP" in link["flags"]


class FilterModule:
    """Ansible's way to find filters."""

    def filters(self) -> dict[str, Any]:
        return {
            "network_as_found": network_as_found,
            "network_drift": network_drift,
            "network_files": network_files,
            "network_lower": network_lower,
        }
