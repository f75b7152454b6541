"""What differs between the interfaces that a node shall have and those that it has."""

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
        return {"network_drift": network_drift, "network_lower": network_lower}
