"""Namespaces, bridges and cables as lines for `ip -batch`. Pure."""

import hashlib
from collections.abc import Collection

from spec.schema import MachineKind
from stacks.lab.model import Bridge, Machine, Network, Port, namespace


def bridge_lines(network: Network, there: Collection[str] = ()) -> list[str]:
    """What makes a lab's namespace out of an empty one, or of one in which some bridges are `there`."""
    lines = ["link set lo up"]
    for bridge in network.bridges:
        lines += _bridge(bridge, bridge.plane in there)
    return lines


def _bridge(bridge: Bridge, there: bool) -> list[str]:
    name = bridge.plane
    if there:
        lines = [f"link set {name} address {bridge.mac}", f"address flush dev {name}"]
    else:
        # No spanning tree and no snooping: the planes have no loops, and a port forwards from its first packet.
        lines = [f"link add {name} address {bridge.mac} type bridge stp_state 0 mcast_snooping 0"]
    # Set and not made with it: otherwise a bridge takes 1500 when its last port goes.
    lines.append(f"link set {name} mtu {bridge.mtu}")
    if bridge.address:
        lines.append(f"address add {bridge.address} broadcast + dev {name}")
    lines.append(f"link set {name} up")
    return lines


def cable_lines(machine: Machine) -> list[str]:
    """Run in the lab's namespace: plugs each port of a machine into its bridge."""
    return [line for port in machine.ports for line in _cable(machine, port)]


def _cable(machine: Machine, port: Port) -> list[str]:
    end = cable(machine.name, port.name)
    node = namespace(machine.stack, machine.name)
    plug = f"link set {end} alias {alias(machine.name, port.name)} master {port.plane} up"
    if machine.kind is MachineKind.VM:  # the emulator holds the other end
        return [f"tuntap add dev {end} mode tap", f"link set {end} mtu {port.mtu}", plug]
    peer = f"peer name {port.name} address {port.mac} mtu {port.mtu} netns {node}"
    return [f"link add {end} mtu {port.mtu} type veth {peer}", plug]


def alias(node: str, port: str) -> str:
    """What a cable's end at the bridge says of whose it is."""
    return f"{node}.{port}"


def port_lines(machine: Machine) -> list[str]:
    """Run in the machine's namespace: management gets its address, the rest is the roles' to configure."""
    lines = ["link set lo up"]
    for port in machine.ports:
        if port.address:
            lines += [f"address add {port.address} broadcast + dev {port.name}", f"link set {port.name} up"]
    return lines


def cable(node: str, port: str) -> str:
    """The name of a cable's end at the bridge. The alias of the interface says whose it is."""
    return "v" + hashlib.sha256(f"{node}/{port}".encode()).hexdigest()[:12]
