"""Makes, reads and removes namespaces, bridges and cables. Each function ends the same from any half-made start."""

import json
from typing import Any

from spec.schema import MachineKind
from stacks.lab import host
from stacks.lab.links import alias, bridge_lines, cable, cable_lines, port_lines
from stacks.lab.model import Machine, Network, namespace
from stacks.lab.process import CommandFailed, run, try_run


async def create(network: Network) -> None:
    """Makes the lab's namespace and bridges, or changes what differs: machines keep their cables."""
    host.allow_watches()
    if await stands(network):
        return
    name = namespace(network.stack)
    try:
        there = {link["ifname"] for link in await _links(name, "bridge")}
    except (CommandFailed, ValueError):
        await remove(network.stack)
        await run("ip", "netns", "add", name)
        there = set()
    await _batch(name, bridge_lines(network, there))


async def stands(network: Network) -> bool:
    """Whether every bridge is there with its MTU and its address."""
    name = namespace(network.stack)
    if name not in await namespaces():
        return False
    try:
        found = json.loads(await run("ip", "-n", name, "-json", "address", "show"))
    except (CommandFailed, ValueError):
        return False
    links = {link["ifname"]: link for link in found}
    for bridge in network.bridges:
        link = links.get(bridge.plane)
        if not link or link["mtu"] != bridge.mtu or link["address"] != bridge.mac or "UP" not in link["flags"]:
            return False
        addresses = {f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"] if each["family"] == "inet"}
        if addresses != ({str(bridge.address)} if bridge.address else set()):
            return False
    return True


async def remove(stack: str) -> None:
    """Removes the lab's namespace and all that is in it."""
    name = namespace(stack)
    if name in await namespaces():
        await run("ip", "netns", "delete", name)


async def connect(machine: Machine) -> None:
    """Plugs a machine's ports in. A container gets its namespace, and there what the lab sets. Raises CommandFailed."""
    await disconnect(machine.stack, machine.name)
    name = namespace(machine.stack, machine.name)
    if machine.kind is MachineKind.VM:
        await _remove_nameless(machine)
        await _batch(namespace(machine.stack), cable_lines(machine))
        return
    await run("ip", "netns", "add", name)
    await _batch(namespace(machine.stack), cable_lines(machine))
    await _batch(name, port_lines(machine))


async def _remove_nameless(machine: Machine) -> None:
    """Removes taps whose making was cut off before they said whose they are."""
    ends = {cable(machine.name, port.name) for port in machine.ports}
    for link in await _links(namespace(machine.stack), "tun"):
        if link["ifname"] in ends:
            await try_run("ip", "-n", namespace(machine.stack), "link", "delete", link["ifname"])


async def connected(machine: Machine) -> bool:
    """Whether every port of a machine is plugged into its bridge. One that is down is plugged in all the same."""
    try:
        found = await _links(namespace(machine.stack), "tun" if machine.kind is MachineKind.VM else "veth")
    except (CommandFailed, ValueError):
        return False
    bridges = {link["ifname"]: link.get("master") for link in found}
    return all(bridges.get(cable(machine.name, port.name)) == port.plane for port in machine.ports)


async def disconnect(stack: str, node: str) -> None:
    """Removes a machine's namespace and cables.

    The kernel clears a deleted namespace some time later: cables are removed first, so that their names are free.
    """
    there, lab, name = await namespaces(), namespace(stack), namespace(stack, node)
    if lab in there:
        for link in await _links(lab, "tun"):
            if link.get("ifalias", "").startswith(alias(node, "")):
                await try_run("ip", "-n", lab, "link", "delete", link["ifname"])
    if name in there:
        for link in await _links(name, "veth"):
            await try_run("ip", "-n", name, "link", "delete", link["ifname"])
        await run("ip", "netns", "delete", name)


async def namespaces() -> frozenset[str]:
    """The names of all network namespaces on the host."""
    return frozenset(line.split()[0] for line in (await run("ip", "netns", "list")).splitlines() if line.strip())


async def _links(name: str, kind: str) -> list[dict[str, Any]]:
    """All links of a kind in a namespace."""
    found: list[dict[str, Any]] = json.loads(await run("ip", "-n", name, "-json", "link", "show", "type", kind) or "[]")
    return found


async def _batch(name: str, lines: list[str]) -> None:
    await run("ip", "-n", name, "-batch", "-", stdin="\n".join(lines) + "\n")
