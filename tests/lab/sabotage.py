"""Something done to a node, and what must come of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from standing_lab import Lab

from policies.exits import Exit


@dataclass(frozen=True)
class Sabotage:
    """Something done to a node, and which controls must notice it where."""

    name: str
    node: str
    script: str
    """Run as root."""
    caught: frozenset[tuple[str, str]]
    """Every control that fails, with its node: these and no others."""
    repair: str = ""
    """What a person does before converging, as root; empty where converging is enough."""
    closes: tuple[str, ...] = ()
    """Nodes of the pool that must be closed."""


def on(*nodes: str, controls: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    return frozenset((control, node) for control in controls for node in nodes)


def caught_and_repaired(lab: Lab, sabotages: Sequence[Sabotage]) -> None:
    """Does all of them at once: each is caught where it is and nowhere else, repaired, and certified again."""
    try:
        for each in sabotages:
            lab.ssh(each.node, script=each.script)
        time.sleep(5)
        assert lab.certify(code=Exit.FAIL) == set().union(*(each.caught for each in sabotages))
        closed = {node for node, state in lab.pool().items() if state != "idle"}
        assert closed == {node for each in sabotages for node in each.closes}
    finally:
        for each in sabotages:
            if each.repair:
                lab.ssh(each.node, script=each.repair)
        lab.muster("converge", "--stack", lab.stack)
    assert lab.certify() == set()
    assert set(lab.pool().values()) == {"idle"}
