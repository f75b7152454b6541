"""The catalogue and the node suite: what is judged is measured, and what is measured is judged or kept as evidence."""

from typing import get_type_hints

import pytest
from pydantic import TypeAdapter
from sample_measurements import EXAMPLES
from sample_nodes import CATALOGUE, expected, node_for

import validation.node.session  # noqa: F401 - registers every measure
from policies.control import Control
from policies.drift import FACTS
from validation.node.measure import MEASURES

COMPARED = "drift compares it with what was certified"

EVIDENCE = {
    "firewall.rules_digest": COMPARED,
    "gpu.cuda_version": "follows from the driver's version, which is judged",
    "gpu.power_limit_w": "for people; its share of the default is judged",
    "kernel.boot_id": "tells a restart from a long run",
    "kernel.command_line": "no spec says yet what it must be",
    "kernel.taints": "proprietary modules taint every GPU node",
    "machine.firmware": COMPARED,
    "machine.product": "for people",
    "machine.virtualization": "for people",
    "ports.listening": "for people; what of it is too much is judged",
    "time.stratum": "for people",
}
"""Measures that no control judges, and why they are taken."""


def test_every_control_is_measured_by_the_suite() -> None:
    assert CATALOGUE.measures <= MEASURES.keys()


def test_every_measure_is_judged_or_says_what_it_is_kept_for() -> None:
    assert MEASURES.keys() - CATALOGUE.measures == EVIDENCE.keys()


def test_what_drift_compares_is_what_is_kept_for_it() -> None:
    assert {measure for measure, why in EVIDENCE.items() if why == COMPARED} == FACTS.keys()


@pytest.mark.parametrize("control", CATALOGUE, ids=lambda control: control.id)
def test_examples_have_the_shape_that_the_suite_gives(control: Control) -> None:
    """A control that expects another shape than is measured would be an error on every node."""
    shape = TypeAdapter(get_type_hints(MEASURES[control.measure].function)["return"])
    spec = expected(node_for(control))
    for value in (EXAMPLES[control.id].passing(spec), *EXAMPLES[control.id].failing(spec)):
        shape.validate_python(value, strict=True)
