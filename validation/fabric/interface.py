"""What a node itself says of its interface on a plane: the one reader of the measurement `network.interfaces`."""

from dataclasses import dataclass

from policies.measurement import Examination
from spec.plan import Node

INTERFACES = "network.interfaces"


@dataclass(frozen=True)
class InterfaceState:
    """An interface as its node found it."""

    name: str
    state: str
    """`up`, `down` or `absent`."""
    address: str | None
    """With prefix length, as in `10.77.1.11/24`."""

    @property
    def up(self) -> bool:
        """Whether it carries traffic."""
        return self.state == "up"


def interface_state(node: Node, plane: str, examination: Examination | None) -> InterfaceState | None:
    """The state of a node's interface on a plane.

    None where the node has none there, or did not measure its interfaces: then nothing is known of it. One that it
    measured and says nothing of, or nothing that can be read, is absent.
    """
    expected = node.interface(plane)
    told = examination.devices(INTERFACES) if examination else None
    if expected is None or told is None:
        return None
    found = told.get(expected.name)
    if not isinstance(found, dict):
        return InterfaceState(expected.name, "absent", None)
    state, address = found.get("state"), found.get("address")
    return InterfaceState(
        expected.name,
        state if isinstance(state, str) else "absent",
        address if isinstance(address, str) else None,
    )
