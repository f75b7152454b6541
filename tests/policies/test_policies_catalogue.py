"""Reading the catalogue: whatever is wrong with it is told with its file, line and field, and all of it at once."""

from pathlib import Path

import pytest
from sample_nodes import CATALOGUE, CONTAINERS, HARDWARE, expected

from policies.catalogue import Catalogue, load_catalogue
from policies.pins import PIN_EXPECTATIONS
from policies.reading import PolicyError
from spec.plan.expectations import EXPECTED

CONTROL = """\
- id: gpu.count
  title: Every GPU that the spec declares is there
  severity: critical
  why: A job that asks for eight GPUs starts on a node with seven.
  measure: gpu.count
  expect: {equals: {spec: gpu.count}}
  repair: {do: "exchange the GPU that is missing"}
  references: ["nvidia:xid-79"]
"""


def problems(folder: Path, **files: str) -> tuple[str, ...]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    with pytest.raises(PolicyError) as error:
        load_catalogue(folder)
    return error.value.problems


def test_a_good_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "gpu.yaml").write_text(CONTROL)
    assert [control.id for control in load_catalogue(tmp_path)] == ["gpu.count"]


def test_every_mistake_is_told_with_file_line_and_field(tmp_path: Path) -> None:
    wrong = CONTROL.replace("critical", "fatal").replace("equals", "equal").replace("measure:", "measures:")
    told = problems(tmp_path, gpu=wrong)
    file = tmp_path / "gpu.yaml"
    assert any(each.startswith(f"{file}:3: [0].severity: ") for each in told)
    assert any(each.startswith(f"{file}:5: [0].measures: no such key") for each in told)
    assert any(each.startswith(f"{file}:6: [0].expect.equal: no such key") for each in told)
    assert any(each.startswith(f"{file}:1: [0].measure: missing") for each in told)


def test_mistakes_of_several_files_are_told_together(tmp_path: Path) -> None:
    told = problems(tmp_path, a=CONTROL.replace("critical", "fatal"), b="- id: [\n", c="id: gpu.count\n")
    assert {Path(each.partition(":")[0]).name for each in told} == {"a.yaml", "b.yaml", "c.yaml"}


def test_an_id_is_given_once_in_all_files(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, a=CONTROL, b=CONTROL)
    assert "gpu.count: is in a.yaml already" in told


def test_a_reference_to_what_no_spec_gives_is_refused(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, a=CONTROL.replace("spec: gpu.count", "spec: gpu.counts"))
    assert "no spec gives gpu.counts" in told


def test_no_control_at_all_is_an_error(tmp_path: Path) -> None:
    assert problems(tmp_path)
    assert problems(tmp_path, gpu="[]\n")
    assert problems(tmp_path, gpu="")


def test_the_digest_follows_what_controls_say(tmp_path: Path) -> None:
    (tmp_path / "gpu.yaml").write_text(CONTROL)
    before = load_catalogue(tmp_path).digest
    (tmp_path / "gpu.yaml").write_text("# a comment\n" + CONTROL)
    assert load_catalogue(tmp_path).digest == before
    (tmp_path / "gpu.yaml").write_text(CONTROL.replace("critical", "warning"))
    assert load_catalogue(tmp_path).digest != before


def test_expectations_have_no_name_that_is_not_declared() -> None:
    """And none is declared that no node has, so that a control cannot wait for it in vain."""
    given: set[str] = set()
    for plan in (HARDWARE, CONTAINERS):
        given |= {name for node in plan.nodes for name in expected(node, plan)}
    assert given == EXPECTED.keys() | PIN_EXPECTATIONS.keys()


def test_a_catalogue_knows_its_controls() -> None:
    assert "gpu.count" in CATALOGUE
    assert CATALOGUE["gpu.count"].measure == "gpu.count"
    assert "gpu.county" not in CATALOGUE
    with pytest.raises(KeyError):
        Catalogue(())["gpu.count"]
