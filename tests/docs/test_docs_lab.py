"""What docs/lab.md says that the lab cannot show is what the controls themselves say of its nodes."""

import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from policies.catalogue import load_catalogue
from policies.judge import judge_node
from policies.pins import expectations_of, load_pins
from policies.verdict import State
from policies.waivers import waivers_of
from spec.load import load
from spec.plan import derive

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lab.md").read_text()

OTHERS = "for nodes with the role"
"""Begins the reason of controls that are about nodes of another role: no lack of the lab's."""


def exempt(cluster: str, name: str) -> dict[str, set[str]]:
    """The controls that do not apply to a node, by the reason that its verdicts give."""
    plan = derive(load(ROOT / "clusters" / f"{cluster}.yaml"))
    catalogue, node = load_catalogue(), plan.node(name)
    expectations = expectations_of(plan, node, load_pins(plan.spec.pins))
    found: dict[str, set[str]] = defaultdict(set)
    for verdict in judge_node(catalogue, node, expectations, None, waivers_of(plan, catalogue), datetime.now(UTC)):
        if verdict.state is State.NOT_APPLICABLE and not verdict.reason.startswith(OTHERS):
            found[verdict.reason].add(verdict.control)
    return dict(found)


def tables() -> list[dict[str, set[str]]]:
    """The page's tables of reasons, in their order."""
    found = []
    for table in re.findall(r"^\| reason \| controls \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
        found.append({reason: set(re.findall(r"`([a-z0-9_.]+)`", controls)) for reason, controls in rows})
    return found


@pytest.mark.parametrize(("place", "cluster"), [(0, "lab-containers"), (1, "lab")])
def test_each_reason_and_control_is_the_one_that_a_report_would_give(place: int, cluster: str) -> None:
    assert tables()[place] == exempt(cluster, "gpu-0")


def test_the_wide_lab_lacks_what_the_lab_lacks() -> None:
    assert exempt("lab-wide", "gpu-0") == exempt("lab-containers", "gpu-0")


@pytest.mark.parametrize("cluster", ["lab", "lab-containers", "lab-wide"])
def test_the_table_of_clusters_counts_their_nodes(cluster: str) -> None:
    plan = derive(load(ROOT / "clusters" / f"{cluster}.yaml"))
    groups = {group.name: group for group in plan.spec.nodes}
    machines = {"container": "containers", "vm": "virtual machines"}[groups["gpu"].machine.value]
    row = re.search(rf"^\| `{cluster}` \| (\d+) .*\| (\d+) \| (\d+) ([a-z ]+) \|", PAGE, re.MULTILINE)
    assert row
    assert row.groups() == (
        str(groups["control"].count),
        str(groups["storage"].count),
        str(groups["gpu"].count),
        machines,
    )
