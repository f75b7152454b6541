"""Every control: what passes it, what must not, and that somebody measures it and somebody repairs it."""

from pathlib import Path
from typing import Any

import pytest
from sample_measurements import EXAMPLES
from sample_nodes import CATALOGUE, CONTAINERS, LAB, NOW, expected, node_for, verdict_of

from policies.answer import Holding, answer
from policies.catalogue import catalogue_markdown
from policies.control import Control
from policies.expectation import Expectation
from policies.judge import judge_node
from policies.verdict import State
from policies.waivers import NO_WAIVERS
from spec.load import load
from spec.plan import derive, expectations
from spec.plan.expectations import EXPECTED
from spec.schema import Cluster

CONTROLS = pytest.mark.parametrize("control", CATALOGUE, ids=lambda control: control.id)

NONSENSE: tuple[Any, ...] = (None, "", "N/A", "[N/A]", "0", "true", -1, float("nan"), float("inf"), 10**400, True)


def test_every_control_has_an_example_and_every_example_a_control() -> None:
    assert EXAMPLES.keys() == {control.id for control in CATALOGUE}


@CONTROLS
def test_a_healthy_measurement_passes(control: Control) -> None:
    node = node_for(control)
    verdict = verdict_of(control, EXAMPLES[control.id].passing(expected(node)))
    assert verdict.state is State.PASS, verdict.reason
    assert verdict.repair == verdict.reason == ""


@CONTROLS
def test_a_wrong_measurement_fails_and_says_what_and_how_to_repair(control: Control) -> None:
    node = node_for(control)
    for value in EXAMPLES[control.id].failing(expected(node)):
        verdict = verdict_of(control, value)
        assert verdict.state is State.FAIL, (value, verdict)
        assert verdict.reason, value
        assert verdict.expected
        assert verdict.repair


@CONTROLS
def test_nonsense_never_passes_anything(control: Control) -> None:
    right = EXAMPLES[control.id].passing(expected(node_for(control)))
    for value in NONSENSE:
        if value is right:
            continue  # true, where that is what is expected
        assert verdict_of(control, value).state in (State.FAIL, State.ERROR), value


def test_what_a_container_shares_with_its_host_is_not_applicable_with_that_reason() -> None:
    node = CONTAINERS.node("gpu-0")
    verdicts = {
        each.control: each for each in judge_node(CATALOGUE, node, expected(node, CONTAINERS), None, NO_WAIVERS, NOW)
    }
    for name in ("kernel.xids", "kernel.uptime", "kernel.version", "host.limits.memlock", "firewall.mac"):
        assert verdicts[name].state is State.NOT_APPLICABLE
        assert "container" in verdicts[name].reason
    assert verdicts["gpu.ecc.uncorrected"].state is State.NOT_EVALUATED


def test_the_lab_is_really_examined_there_and_not_excused() -> None:
    """At least thirty controls apply to a compute node of the lab, and one of each area that it can show."""
    node = CONTAINERS.node("gpu-0")
    verdicts = judge_node(CATALOGUE, node, expected(node, CONTAINERS), None, NO_WAIVERS, NOW)
    asked = {each.control for each in verdicts if each.state is not State.NOT_APPLICABLE}
    areas = {name.partition(".")[0] for name in asked}
    assert len(asked) >= 30
    assert areas >= {
        "gpu",
        "network",
        "time",
        "filesystem",
        "host",
        "firewall",
        "ports",
        "pins",
        "users",
        "services",
        "slurm",
    }


def test_what_is_repaired_by_a_role_is_repaired_by_one_that_exists() -> None:
    roles = {path.parent.name for path in (Path(__file__).parents[2] / "roles").glob("*/tasks")}
    assert {control.repair.role for control in CATALOGUE if control.repair.role} <= roles


def test_the_reference_names_every_control_with_its_reason() -> None:
    text = catalogue_markdown(CATALOGUE)
    for control in CATALOGUE:
        assert f"`{control.id}`" in text
        assert control.why in text
    assert "None" not in text.partition("## What `expect` may say")[2]
    for name in (*Expectation.model_fields, *EXPECTED):
        assert f"- `{name}`: " in text


def test_the_catalogue_has_a_control_in_every_area_that_training_needs() -> None:
    areas = {control.id.partition(".")[0] for control in CATALOGUE}
    assert areas >= {
        *("gpu", "rdma", "network", "time", "filesystem", "host", "firewall", "ports", "pins", "kernel", "users"),
        *("services", "slurm"),
    }
    assert len(CATALOGUE) >= 38


def test_people_of_the_site_may_log_in_where_the_spec_names_them_and_nowhere_else() -> None:
    spec = load(LAB).model_dump(by_alias=True)
    spec["site"]["users"] = ["ada"]
    node = derive(Cluster.model_validate(spec)).node("gpu-0")
    control = CATALOGUE["users.login"]
    told = expectations(derive(Cluster.model_validate(spec)), node)
    assert answer(control.expect, ["ada", "muster"], told).holding is Holding.HOLDS
    assert answer(control.expect, ["ada", "bob"], told).holding is Holding.BROKEN
    assert answer(CATALOGUE["users.sudo"].expect, ["ada", "root"], told).holding is Holding.BROKEN
