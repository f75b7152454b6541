"""A port that is down keeps out its own node and nobody else; what nothing explains keeps out both ends."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from policies.measurement import Examination, Measurement, Outcome
from spec.load import load
from spec.plan import derive
from validation.fabric.reach import LOST, PATH, attribute

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def plan():
    return derive(load(Path("clusters/lab-containers.yaml")))


def examination(plan, name, *, lost=(), interfaces=None, unreachable=None, outcome=Outcome.MEASURED):
    node = plan.node(name)
    up = {each.name: {"address": str(each.address), "mtu": each.mtu, "state": "up"} for each in node.interfaces}
    losses = {
        f"{each.plane}/{peer.name}": 100.0 if f"{each.plane}/{peer.name}" in lost else 0.0
        for each in node.interfaces
        for peer in plan.nodes
        if peer.name != name and peer.interface(each.plane)
    }
    measured = outcome is Outcome.MEASURED
    return Examination(
        node=name,
        started=NOW,
        finished=NOW,
        complete=True,
        suite_digest="0" * 64,
        identity={},
        measurements=(
            Measurement(measure="network.interfaces", outcome=Outcome.MEASURED, value={**up, **(interfaces or {})}),
            Measurement(
                measure=LOST,
                outcome=outcome,
                value=losses if measured else None,
                reason=None if measured else "no ping",
            ),
            Measurement(
                measure=PATH,
                outcome=Outcome.MEASURED,
                value={key: 0 if loss else plan.subnet(key.split("/")[0]).mtu for key, loss in losses.items()},
            ),
        ),
        unreachable=unreachable,
    )


def unreached(plan, **by_node):
    everyone = {
        node.name: examination(plan, node.name, **by_node.get(node.name.replace("-", "_"), {})) for node in plan.nodes
    }
    result = attribute(plan, everyone)
    return {
        name: sorted(key for key, loss in each.measured(LOST).value.items() if loss)
        for name, each in result.items()
        if each.measured(LOST).outcome is Outcome.MEASURED
    }


def test_without_losses_nobody_is_charged(plan):
    assert not any(unreached(plan).values())


@pytest.mark.parametrize(
    "port",
    [
        {"address": "10.77.64.15/24", "mtu": 9000, "state": "down"},
        {"address": None, "mtu": 9000, "state": "up"},
        {"address": "10.77.64.99/24", "mtu": 9000, "state": "up"},
        "nonsense",
    ],
)
def test_a_bad_port_is_charged_to_its_own_node_only(plan, port):
    found = unreached(
        plan,
        gpu_0={"lost": ["rail-0/gpu-1"]},
        gpu_1={"lost": ["rail-0/gpu-0"], "interfaces": {"rail0": port}},
    )
    assert found["gpu-0"] == []
    assert found["gpu-1"] == ["rail-0/gpu-0"]


def test_a_loss_that_nothing_explains_stays_with_both_ends(plan):
    found = unreached(plan, gpu_0={"lost": ["rail-0/gpu-1"]}, gpu_1={"lost": ["rail-0/gpu-0"]})
    assert found["gpu-0"] == ["rail-0/gpu-1"]
    assert found["gpu-1"] == ["rail-0/gpu-0"]


def test_a_node_that_reaches_nobody_while_others_meet_is_charged_alone(plan):
    peers = [node.name for node in plan.nodes if node.name != "storage-1"]
    found = unreached(
        plan,
        storage_1={"lost": [f"storage/{peer}" for peer in peers]},
        **{peer.replace("-", "_"): {"lost": ["storage/storage-1"]} for peer in peers},
    )
    assert {name for name, keys in found.items() if keys} == {"storage-1"}


def test_a_plane_that_is_down_for_everybody_excuses_nobody(plan):
    names = [node.name for node in plan.nodes]
    found = unreached(
        plan,
        **{name.replace("-", "_"): {"lost": [f"storage/{peer}" for peer in names if peer != name]} for name in names},
    )
    assert all(found[name] for name in names)


def test_a_node_that_cannot_be_examined_explains_the_losses_to_it(plan):
    planes = [each.plane for each in plan.node("gpu-1").interfaces]
    found = unreached(
        plan,
        gpu_0={"lost": [f"{plane}/gpu-1" for plane in planes]},
        gpu_1={"unreachable": "No route to host"},
    )
    assert found["gpu-0"] == []


def test_two_bad_ports_do_not_excuse_each_other(plan):
    down = {"address": None, "mtu": 9000, "state": "down"}
    found = unreached(
        plan,
        gpu_0={"lost": ["rail-0/gpu-1"], "interfaces": {"rail0": down}},
        gpu_1={"lost": ["rail-0/gpu-0"], "interfaces": {"rail0": down}},
    )
    assert found["gpu-0"]
    assert found["gpu-1"]


def test_a_path_is_excused_exactly_where_its_loss_is_and_what_was_told_is_kept(plan):
    down = {"address": None, "mtu": 9000, "state": "down"}
    everyone = {node.name: examination(plan, node.name) for node in plan.nodes}
    everyone["gpu-0"] = examination(plan, "gpu-0", lost=["rail-0/gpu-1", "rail-1/gpu-1"])
    everyone["gpu-1"] = examination(plan, "gpu-1", lost=["rail-0/gpu-0"], interfaces={"rail0": down})
    told = attribute(plan, everyone)["gpu-0"]
    assert told.measured(PATH).value["rail-0/gpu-1"] == 9000
    assert told.measured(PATH).value["rail-1/gpu-1"] == 0
    assert told.measured(PATH + ".raw").value["rail-0/gpu-1"] == 0
    assert told.measured(LOST + ".raw").value["rail-0/gpu-1"] == 100.0
    assert "rail0 of gpu-1" in told.measured(LOST).source


def test_losses_that_were_not_measured_are_not_measured_after_attribution_either(plan):
    found = unreached(plan, gpu_0={"outcome": Outcome.UNMEASURABLE})
    assert "gpu-0" not in found
