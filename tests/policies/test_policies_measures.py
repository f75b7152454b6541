"""The catalogue and the node suite: what is judged is measured, and what is measured is judged or kept as evidence."""

import validation.node.session  # noqa: F401 - registers every measure
from policies.catalogue import load_catalogue
from validation.node.measure import MEASURES

EVIDENCE = {
    "firewall.rules_digest": "drift compares it with an earlier one",
    "gpu.cuda_version": "follows from the driver's version, which is judged",
    "gpu.power_limit_w": "for people; its share of the default is judged",
    "kernel.boot_id": "tells a restart from a long run",
    "kernel.command_line": "no spec says yet what it must be",
    "kernel.taints": "proprietary modules taint every GPU node",
    "machine.firmware": "drift compares it with an earlier one",
    "machine.product": "for people",
    "machine.virtualization": "for people",
    "ports.listening": "for people; what of it is too much is judged",
    "time.stratum": "for people",
}
"""Measures that no control judges, and why they are taken."""


def test_every_control_is_measured_by_the_suite() -> None:
    assert load_catalogue().measures <= MEASURES.keys()


def test_every_measure_is_judged_or_says_what_it_is_kept_for() -> None:
    assert MEASURES.keys() - load_catalogue().measures == EVIDENCE.keys()
