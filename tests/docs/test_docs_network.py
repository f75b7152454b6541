"""What the page on networks shows as a workload is one."""

import re
from pathlib import Path

from spec.document import parse
from spec.load import load
from spec.plan import derive
from spec.workload import declare, hardware
from spec.workload.answer import Asked, Network, answer

ROOT = Path(__file__).parents[2]


def test_the_workload_that_the_page_shows_can_be_planned() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/plan-network.md").read_text(), re.DOTALL)
    there = hardware(derive(load(ROOT / "clusters/h100-roce-1024.yaml")))
    told = answer([Asked(declare(parse(block).data), there)], Network(measured=False, source="the spec"))
    assert told.plans[0].model.name == "mine"
    assert told.plans[0].cost


def test_settings_that_the_page_names_exist() -> None:
    page = (ROOT / "docs/plan-network.md").read_text()
    named = {name.partition(".")[2] for name in re.findall(r"`(training\.\w+)`", page)}
    fields = set(type(declare(parse(_SMALL).data).training).model_fields)
    assert named
    assert named <= fields


_SMALL = """
model: {layers: 1, hidden: 64, heads: 1, vocabulary: 10, sequence: 8}
training: {global_batch: 1}
"""
