"""Seven sabotages: each is caught by the right control on the right node and nowhere else, repaired, certified again."""

import time
from dataclasses import dataclass

import pytest
from conftest import Lab

from policies.exits import Exit


@dataclass(frozen=True)
class Sabotage:
    """Something done to a node, and which controls must notice it where."""

    name: str
    node: str
    command: str
    caught: frozenset[tuple[str, str]]
    repair: str = ""
    """What a person does before converging; empty where converging is enough."""
    closes: tuple[str, ...] = ()
    """Nodes of the pool that must be closed."""


def on(node: str, *controls: str) -> frozenset[tuple[str, str]]:
    return frozenset((control, node) for control in controls)


STATE = "/etc/muster/simulated-gpus.ini"
SABOTAGES = (
    Sabotage(
        "an uncorrectable ECC error",
        "gpu-1",
        f"sudo sh -c 'sed \"/^\\[gpu 3\\]/a ecc.volatile_uncorrected = 2\" {STATE} > {STATE}.new && mv {STATE}.new {STATE}'",
        on("gpu-1", "gpu.ecc.uncorrected"),
        closes=("gpu-1",),
    ),
    Sabotage(
        "a rail down",
        "gpu-1",
        "sudo ip link set rail1 down",
        on("gpu-1", "network.interfaces.up", "network.peers"),
        closes=("gpu-0", "gpu-1"),  # with one node left, nobody can show that its rail is good
    ),
    Sabotage(
        "chrony stopped",
        "storage-1",
        "sudo systemctl stop chrony",
        on("storage-1", "time.synchronised", "time.offset", "time.source", "services.active"),
    ),
    Sabotage(
        "an open port",
        "storage-0",
        "sudo systemd-run --unit=stranger python3 -m http.server 8080 --bind 0.0.0.0",
        on("storage-0", "ports.unexpected"),
        repair="sudo systemctl stop stranger",
    ),
    Sabotage(
        "a full disk",
        "control-0",
        "sudo sh -c 'mkdir -p /var/lib/full && mount -t tmpfs -o size=4m full /var/lib/full && "
        "head -c 4194304 /dev/zero > /var/lib/full/full'",
        on("control-0", "host.disk.room"),
        repair="sudo umount /var/lib/full",
    ),
)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.name)
def test_a_sabotage_is_caught_where_it_is_and_nowhere_else(lab: Lab, sabotage: Sabotage) -> None:
    lab.ssh(sabotage.node, sabotage.command)
    time.sleep(2)
    try:
        assert lab.certify(code=Exit.FAIL) == sabotage.caught
        closed = {node for node, state in lab.pool().items() if state != "idle"}
        assert closed == set(sabotage.closes)
    finally:
        if sabotage.repair:
            lab.ssh(sabotage.node, sabotage.repair)
        lab.muster("converge", "--stack", lab.stack)
    assert lab.certify() == set()
    assert set(lab.pool().values()) == {"idle"}
