"""Whose fault it is that two nodes do not reach each other.

Each node pings every peer on every plane, so one port that is down makes every other node report a loss. What the
peer's own state explains is not counted against the node that reports it, so that a fault keeps out the node that has
it and nobody else. What nothing explains stays with both ends. What was really measured is kept beside it.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from policies.measurement import Examination, Measurement, Outcome
from spec.plan import ClusterPlan, Node
from validation.fabric.interface import interface_state

LOST = "network.peers_lost"
PATH = "network.mtu_path"
RAW = ".raw"
"""Ends the name under which a measurement is kept as the node told it, where some of it is not counted."""


def attribute(plan: ClusterPlan, examinations: Mapping[str, Examination]) -> dict[str, Examination]:
    """The examinations with losses and path sizes as far as they count against the node that measured them. Pure."""
    explained = {
        (interface.plane, node.name): why
        for node in plan.nodes
        for interface in node.interfaces
        if (why := _own_fault(node, interface.plane, examinations))
    }
    good: dict[str, dict[str, JsonValue]] = {
        LOST: dict.fromkeys((subnet.plane for subnet in plan.subnets), 0.0),
        PATH: {subnet.plane: subnet.mtu for subnet in plan.subnets},
    }
    found = {}
    for name, examination in examinations.items():
        own = {plane for plane, node in explained if node == name}
        others = {where: why for where, why in explained.items() if where[0] not in own}
        told: list[Measurement] = []
        for measurement in examination.measurements:
            told += _counted(measurement, others, good.get(measurement.measure, {}))
        found[name] = examination.model_copy(update={"measurements": tuple(told)})
    return found


def _counted(
    told: Measurement, explained: Mapping[tuple[str, str], str], good: Mapping[str, JsonValue]
) -> tuple[Measurement, ...]:
    """A measurement without what others explain, and as it was told beside it; itself where nothing is taken out."""
    value = told.value
    if not good or told.outcome is not Outcome.MEASURED or not isinstance(value, dict):
        return (told,)
    excused = {
        key: explained[where]
        for key, each in value.items()
        if (where := _where(key)) in explained and each != good.get(where[0])
    }
    if not excused:
        return (told,)
    counted = {key: good[_where(key)[0]] if key in excused else each for key, each in value.items()}
    source = f"not counted: {'; '.join(sorted(set(excused.values())))}"[:200]
    raw = told.model_copy(update={"measure": told.measure + RAW, "took_s": 0.0})
    return told.model_copy(update={"value": counted, "source": source}), raw


def _where(key: str) -> tuple[str, str]:
    """The plane and peer of a key `plane/peer`."""
    plane, _, peer = key.partition("/")
    return plane, peer


def _own_fault(node: Node, plane: str, examinations: Mapping[str, Examination]) -> str:
    """What is wrong with a node's own place on a plane; empty where nothing is known to be."""
    examination = examinations.get(node.name)
    if examination is None or examination.unreachable:
        return f"{node.name} cannot be examined"
    expected, found = node.interface(plane), interface_state(node, plane, examination)
    if expected and found:
        if not found.up:
            return f"{found.name} of {node.name} is {found.state}"
        if found.address != str(expected.address):
            return f"{found.name} of {node.name} has another address"
    mine = _losses(examination, plane)
    if mine and all(loss != 0 for loss in mine.values()) and _others_meet(node.name, plane, examinations):
        return f"{node.name} reaches nobody on {plane}, where others reach each other"
    return ""


def _losses(examination: Examination | None, plane: str) -> dict[str, JsonValue]:
    """Loss to each peer on a plane; empty where it was not measured."""
    lost = (examination.devices(LOST) if examination else None) or {}
    prefix = f"{plane}/"
    return {key.removeprefix(prefix): loss for key, loss in lost.items() if key.startswith(prefix)}


def _others_meet(name: str, plane: str, examinations: Mapping[str, Examination]) -> bool:
    """Whether two other nodes reach each other on a plane: then it is not the plane that is down."""
    return any(
        loss == 0 and peer != name
        for other, examination in examinations.items()
        if other != name
        for peer, loss in _losses(examination, plane).items()
    )
