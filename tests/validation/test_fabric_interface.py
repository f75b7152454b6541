"""What a node says of its own interface: one reading of it, for tests on rails and for who is charged with a loss."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from policies.measurement import Examination, Measurement, Outcome
from spec.load import load
from spec.plan import Node, derive
from validation.fabric.interface import INTERFACES, InterfaceState, interface_state

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
UP = {"address": "10.77.64.14/24", "mtu": 9000, "state": "up"}


@pytest.fixture(scope="module")
def node() -> Node:
    return derive(load(Path("clusters/lab-containers.yaml"))).node("gpu-0")


def told(*values: Any, outcome: Outcome = Outcome.MEASURED) -> Examination:
    measured = outcome is Outcome.MEASURED
    return Examination(
        node="gpu-0",
        started=NOW,
        finished=NOW,
        complete=True,
        suite_digest="0" * 64,
        identity={},
        measurements=tuple(
            Measurement(
                measure=INTERFACES, outcome=outcome, value=each if measured else None, reason=None if measured else "x"
            )
            for each in values
        ),
    )


def test_the_state_and_address_are_those_that_the_node_measured(node: Node) -> None:
    assert interface_state(node, "rail-0", told({"rail0": UP})) == InterfaceState("rail0", "up", "10.77.64.14/24")
    assert interface_state(node, "rail-0", told({"rail0": UP | {"state": "down"}})).state == "down"


@pytest.mark.parametrize(
    "examination",
    [None, told(), told({"rail0": UP}, {"rail0": UP}), told({}, outcome=Outcome.ERROR), told([UP]), told(None)],
    ids=["not examined", "not measured", "told twice", "failed", "not by interface", "nothing"],
)
def test_nothing_is_known_where_a_node_did_not_measure_its_interfaces(
    node: Node, examination: Examination | None
) -> None:
    assert interface_state(node, "rail-0", examination) is None


def test_a_node_without_an_interface_on_a_plane_has_no_state_there(node: Node) -> None:
    assert interface_state(node, "rail-7", told({"rail0": UP})) is None


@pytest.mark.parametrize("value", [{}, {"rail0": None}, {"rail0": "up"}, {"rail0": {}}, {"rail0": {"state": 1}}])
def test_an_interface_that_a_node_leaves_out_of_its_answer_is_never_up(node: Node, value: dict[str, Any]) -> None:
    assert interface_state(node, "rail-0", told(value)) == InterfaceState("rail0", "absent", None)
