"""What the spec expects of a node: complete on small planes, bounded on large ones, and only declared names."""

import json
from collections import Counter
from pathlib import Path

import pytest

from spec.load import load
from spec.plan import ClusterPlan, derive, expectations
from spec.plan.expectations import EXPECTED, FEW, probed_peers
from spec.schema import Role

CLUSTERS = Path(__file__).parents[2] / "clusters"
LAB = derive(load(CLUSTERS / "lab-containers.yaml"))
LARGE = derive(load(CLUSTERS / "h100-roce-1024.yaml"))


@pytest.mark.parametrize("plan", [LAB, LARGE], ids=lambda plan: plan.name)
def test_expectations_are_json_and_have_no_name_that_is_not_declared(plan: ClusterPlan) -> None:
    for node in plan.nodes:
        found = expectations(plan, node)
        json.dumps(found, allow_nan=False)
        assert found.keys() <= EXPECTED.keys()


def test_on_a_small_plane_every_node_tries_every_other() -> None:
    for node in LAB.nodes:
        for each in node.interfaces:
            assert probed_peers(LAB, node, each.plane).keys() == LAB.addresses[each.plane].keys() - {node.name}


def test_on_a_large_plane_each_node_tries_few_is_tried_by_as_many_and_no_cut_goes_unseen() -> None:
    everyone = LARGE.addresses["rail-0"]
    assert len(everyone) > FEW + 1
    tried = {name: probed_peers(LARGE, LARGE.node(name), "rail-0") for name in everyone}
    tries = Counter(peer for peers in tried.values() for peer in peers)
    for name, peers in tried.items():
        assert name not in peers
        assert len(peers) <= FEW
        assert tries[name] == len(peers)
    names = list(everyone)
    for size in range(1, len(names)):
        inside = set(names[:size])
        assert any(tried[name].keys() - inside for name in inside)


def test_everybody_tries_the_nodes_that_everybody_needs() -> None:
    needed = {node.name for role in (Role.CONTROL, Role.STORAGE) for node in LARGE.with_role(role)}
    for node in LARGE.with_role(Role.COMPUTE)[:5]:
        assert probed_peers(LARGE, node, "storage").keys() >= needed - {node.name}


def test_paths_are_the_peers_with_the_mtu_of_their_plane() -> None:
    node = LAB.node("gpu-0")
    found = expectations(LAB, node)
    peers: dict[str, dict[str, str]] = found["network.peers"]  # type: ignore[assignment]
    assert found["network.paths"] == {
        f"{plane}/{name}": LAB.subnet(plane).mtu for plane, by_name in peers.items() for name in by_name
    }


def test_a_missing_module_of_memory_is_seen_and_the_kernels_own_share_is_not_missed() -> None:
    node = LARGE.with_role(Role.COMPUTE)[0]
    floor: float = expectations(LARGE, node)["memory.at_least_gib"]  # type: ignore[assignment]
    shown = 1 - 64 / 4096  # what page structures leave
    assert node.memory_gib * shown - 0.1 >= floor
    assert node.memory_gib * 31 / 32 * shown < floor
