"""What the pages on training runs say is what the runtime does."""

import re
from pathlib import Path

import pytest
import yaml

from runtime.config import load

DOCS = Path(__file__).parents[2] / "docs"
GROUPS = ("checkpoints", "stops", "loss", "restarts", "replicas", "watchdog")


@pytest.mark.parametrize("page", sorted(DOCS.glob("training-*.md")), ids=lambda page: page.name)
def test_configurations_that_pages_show_can_be_used(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        shown = yaml.safe_load(block)
        if "checkpoints" in shown:
            load(shown)


def test_settings_that_pages_name_exist() -> None:
    """As `stops.grace_s`: a group of the configuration, and a field of it."""
    config = load({"checkpoints": {"folder": "x"}})
    groups = {name: type(getattr(config, name)).model_fields for name in GROUPS}
    named = [found for page in DOCS.glob("training-*.md") for found in re.findall(r"`(\w+)\.(\w+)", page.read_text())]
    told = [(group, name) for group, name in named if group in groups]
    assert len(told) >= 2
    assert [(group, name) for group, name in told if name not in groups[group]] == []
