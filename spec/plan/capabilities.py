"""What each kind of machine can do: the reason why a control does not apply to it."""

from spec.schema import Capability, MachineKind

CAPABILITIES: dict[MachineKind, frozenset[Capability]] = {
    MachineKind.HOST: frozenset(Capability),
    MachineKind.VM: frozenset(Capability) - {Capability.PROCESSORS},
    MachineKind.CONTAINER: frozenset(),
}

LACKING: dict[Capability, str] = {
    Capability.KERNEL: "a container shares its host's kernel",
    Capability.RDMA: "a container has no RDMA device: its rails carry TCP",
    Capability.BONDING: "a container has one interface a plane, and its host's kernel has no bonding",
    Capability.VLAN: "a container's planes are bridges of their own, without VLAN tags",
    Capability.CLOCK: "a container shares its host's clock",
    Capability.LIMITS: "a container's hard limits are its host's",
    Capability.PROCESSORS: "its processors are its host's, and other machines compute on them too",
}
"""Why a machine that lacks a capability is not examined for what needs it."""
