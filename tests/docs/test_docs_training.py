"""What the pages on training runs say is what the runtime does."""

import re
from pathlib import Path

import pytest
import yaml

from runtime.config import load
from runtime.exits import Exit
from runtime.failures.kinds import TREATMENTS

DOCS = Path(__file__).parents[2] / "docs"
EXITS = (DOCS / "training-exit-codes.md").read_text()


def rows(header: str) -> list[list[str]]:
    """The rows of the table with that header."""
    table = re.search(rf"^\| {re.escape(header)} .*\n\|[-|]+\n((?:\|.*\n)+)", EXITS, re.MULTILINE)
    assert table
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def test_the_table_of_exit_codes_is_the_programs() -> None:
    assert [(int(code), name) for code, name, _ in rows("code")] == [(each.value, each.name.lower()) for each in Exit]


def test_the_table_of_failures_is_the_programs() -> None:
    told = {kind: (int(code), saved == "yes", advice.strip(" |")) for kind, code, saved, advice in rows("kind")}
    assert told == {str(kind): (int(each.exit), each.saveable, each.advice) for kind, each in TREATMENTS.items()}


@pytest.mark.parametrize("page", sorted(DOCS.glob("training-*.md")), ids=lambda page: page.name)
def test_configurations_that_pages_show_can_be_used(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        shown = yaml.safe_load(block)
        if "checkpoints" in shown:
            load(shown)


def test_settings_that_pages_name_exist() -> None:
    """As `stops.grace_s`: of a group of the configuration."""
    config = load({"checkpoints": {"folder": "x"}})
    groups = {name: type(getattr(config, name)).model_fields for name in ("save", "keep", "stops", "loss", "restarts")}
    for page in DOCS.glob("training-*.md"):
        for group, name in re.findall(r"`([a-z]+)\.([a-z_]+)(?:: [^`]*)?`", page.read_text()):
            assert group not in groups or name in groups[group] or "." in name or group == "save", (
                page.name,
                group,
                name,
            )
