"""Nodes of a cluster on which every control applies somewhere, and what they measure."""

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from policies import judge as judging
from policies.catalogue import Catalogue, load_catalogue
from policies.control import Control
from policies.measurement import Examination, Measurement, Outcome
from policies.pins import PinSet, expectations_of, load_pins
from policies.verdict import State, Verdict
from policies.waivers import NO_WAIVERS, Waivers
from spec.load import load
from spec.plan import ClusterPlan, Expectations, Node, derive
from spec.schema import Cluster

LAB = Path(__file__).parents[2] / "clusters" / "lab-containers.yaml"
NOW = datetime(2026, 11, 29, 14, 20, tzinfo=UTC)


def on_hardware() -> ClusterPlan:
    """The lab's shape on real machines: RoCE rails, bonds, a kernel each, a site's time servers."""
    spec = load(LAB).model_dump(by_alias=True)
    spec["site"]["time"]["sources"] = ["192.0.2.1"]
    spec["substrate"] = "static"
    spec["networks"]["fabric"] |= {"kind": "roce", "lossless": {"dscp": 26, "priority": 3}}
    for group in spec["nodes"]:
        group["machine"] = "host"
    return derive(Cluster.model_validate(spec))


def with_kernel(pins: PinSet) -> PinSet:
    return pins.model_copy(update={"components": {**pins.components, "kernel": "6.8.0"}})


HARDWARE = on_hardware()
CONTAINERS = derive(load(LAB))
PINS = with_kernel(load_pins("lab"))
CATALOGUE: Catalogue = load_catalogue()


def expected(node: Node, plan: ClusterPlan = HARDWARE) -> Expectations:
    return {**_expected(node.name, plan.name, plan.digest)}


@cache
def _expected(node: str, name: str, digest: str) -> Expectations:
    plan = next(each for each in (HARDWARE, CONTAINERS) if (each.name, each.digest) == (name, digest))
    return expectations_of(plan, plan.node(node), PINS)


def node_for(control: Control, plan: ClusterPlan = HARDWARE) -> Node:
    """The plan's first node that the control is about."""
    for node in plan.nodes:
        told = judging.judge(control, node, expected(node, plan), None, NO_WAIVERS, NOW)
        if told.state is not State.NOT_APPLICABLE:
            return node
    raise LookupError(f"{control.id} applies to no node of {plan.name}")


def measured(name: str, value: Any, **changed: Any) -> Measurement:
    return Measurement.model_validate({"measure": name, "outcome": Outcome.MEASURED, "value": value} | changed)


def examined(node: str, *measurements: Measurement, **changed: Any) -> Examination:
    told: dict[str, Any] = {
        "node": node,
        "started": NOW - timedelta(seconds=9),
        "finished": NOW - timedelta(seconds=7),
        "complete": True,
        "suite_digest": "b" * 64,
        "identity": {},
        "measurements": measurements,
    }
    return Examination.model_validate(told | changed)


def verdict_of(control: Control, value: Any, node: Node | None = None, waivers: Waivers = NO_WAIVERS) -> Verdict:
    """What the control says of a node that measured `value`."""
    node = node or node_for(control)
    run = examined(node.name, measured(control.measure, value))
    return judging.judge(control, node, expected(node), run, waivers, NOW)
