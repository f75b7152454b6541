"""Whose fault it is that two nodes do not reach each other.

Each node pings every peer on every plane, so one port that is down makes every other node report a loss. The fact that
controls judge is `network.unreached`: a node's losses less those that the peer's own state explains, so that a fault
keeps out the node that has it and nobody else. What nothing explains stays with both ends.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from policies.measurement import Examination, Outcome
from spec.plan import ClusterPlan, Node

LOST = "network.peers_lost"
UNREACHED = "network.unreached"


def attribute(plan: ClusterPlan, examinations: Mapping[str, Examination]) -> dict[str, Examination]:
    """The examinations with `network.unreached` added to each that measured `network.peers_lost`. Pure."""
    explained = {
        (interface.plane, node.name): why
        for node in plan.nodes
        for interface in node.interfaces
        if (why := _own_fault(node, interface.plane, examinations))
    }
    return {name: _with_unreached(each, explained) for name, each in examinations.items()}


def _with_unreached(examination: Examination, explained: Mapping[tuple[str, str], str]) -> Examination:
    lost = examination.measured(LOST)
    if lost is None or examination.measured(UNREACHED) is not None:
        return examination
    value, source = lost.value, LOST
    if lost.outcome is Outcome.MEASURED and isinstance(value, dict):
        own = {plane for plane, node in explained if node == examination.node}
        excused = {
            key: explained[where]
            for key, loss in value.items()
            if loss != 0 and (where := _where(key)) in explained and where[0] not in own
        }
        value = {key: 0.0 if key in excused else loss for key, loss in value.items()}
        if excused:
            source = f"{LOST}; not counted: {'; '.join(sorted(set(excused.values())))}"[:200]
    derived = lost.model_copy(update={"measure": UNREACHED, "value": value, "source": source, "took_s": 0.0})
    return examination.model_copy(update={"measurements": (*examination.measurements, derived)})


def _where(key: str) -> tuple[str, str]:
    """The plane and peer of a key `plane/peer`."""
    plane, _, peer = key.partition("/")
    return plane, peer


def _own_fault(node: Node, plane: str, examinations: Mapping[str, Examination]) -> str:
    """What is wrong with a node's own place on a plane; empty where nothing is known to be."""
    examination = examinations.get(node.name)
    if examination is None or examination.unreachable:
        return f"{node.name} cannot be examined"
    expected = node.interface(plane)
    interfaces = examination.measured("network.interfaces")
    if expected and interfaces and interfaces.outcome is Outcome.MEASURED and isinstance(interfaces.value, dict):
        found = interfaces.value.get(expected.name)
        if not isinstance(found, dict):
            return f"{node.name} has no {expected.name}"
        if found.get("state") != "up":
            return f"{expected.name} of {node.name} is {found.get('state')}"
        if found.get("address") != str(expected.address):
            return f"{expected.name} of {node.name} has another address"
    mine = _losses(examination, plane)
    if mine and all(loss != 0 for loss in mine.values()) and _others_meet(node.name, plane, examinations):
        return f"{node.name} reaches nobody on {plane}, where others reach each other"
    return ""


def _losses(examination: Examination | None, plane: str) -> dict[str, JsonValue]:
    """Loss to each peer on a plane; empty where it was not measured."""
    lost = examination.measured(LOST) if examination else None
    if lost is None or lost.outcome is not Outcome.MEASURED or not isinstance(lost.value, dict):
        return {}
    prefix = f"{plane}/"
    return {key.removeprefix(prefix): loss for key, loss in lost.value.items() if key.startswith(prefix)}


def _others_meet(name: str, plane: str, examinations: Mapping[str, Examination]) -> bool:
    """Whether two other nodes reach each other on a plane: then it is not the plane that is down."""
    return any(
        loss == 0 and peer != name
        for other, examination in examinations.items()
        if other != name
        for peer, loss in _losses(examination, plane).items()
    )
