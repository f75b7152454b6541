"""The pages that come from the code say what the code says."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

_spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
assert _spec
assert _spec.loader
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)
PAGES: dict[str, str] = generate.pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], "run make docs"


def test_no_other_page_passes_for_a_generated_one() -> None:
    there = {str(path.relative_to(DOCS)) for folder in ("reference", "pictures") for path in (DOCS / folder).iterdir()}
    assert there == set(PAGES)


def test_every_command_control_and_proof_is_in_the_reference() -> None:
    assert PAGES["reference/controls.md"].count("\n### `") > 60
    entries = len(generate.app.registered_commands) + len(generate.app.registered_groups)
    assert PAGES["reference/commands.md"].count("\n## `muster ") == entries
    assert PAGES["reference/proofs.md"].count("| `") > len(generate.PROOFS)


def test_every_rule_of_a_diagnosis_is_in_the_reference_under_its_symptom() -> None:
    page = PAGES["reference/diagnosis-rules.md"]
    for rule in generate.diagnosis_rules():
        section = page.split(f"\n## `{rule.symptom.value}`:")[1].split("\n## ")[0]
        (row,) = [line for line in section.splitlines() if line.startswith(f"| `{rule.id}` |")]
        assert all(f"`{source}`" in row for source in rule.sources)
        assert len(re.findall(r"(?<!\\)\|", row)) == 6
