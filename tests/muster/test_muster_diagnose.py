"""`muster diagnose` at the edges: what it writes where, what it refuses, and that its JSON is as its schema says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.exits import Exit
from validation.diagnose.finding import Diagnosis

Muster = Callable[..., tuple[Exit, str, str]]
LOGS = Path(__file__).parents[2] / "examples" / "logs"


@pytest.mark.parametrize(
    ("name", "kind"), [("hang", "storage.stale"), ("checkpoint", "storage.full"), ("slow", "network.rdma_fallback")]
)
def test_the_page_and_the_json_say_the_same(muster: Muster, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "page.html"
    code, out, _ = muster("diagnose", str(LOGS / name), "--html", str(path), "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    assert told["root_cause"]["kind"] == kind
    html = path.read_text()
    summary = told["root_cause"]["summary"]
    assert f"{summary[0].upper()}{summary[1:]}" in html
    assert all(f"{each['file']}:{each['line']}" in html for each in told["root_cause"]["evidence"])


def test_json_is_what_its_published_schema_says(muster: Muster) -> None:
    code, out, _ = muster("schema", "diagnosis")
    schema = json.loads(out)
    assert code is Exit.PASS
    told = json.loads(muster("diagnose", str(LOGS / "hang"), "--json")[1])
    fits(told, schema, schema)
    assert Diagnosis.model_validate(told).model_dump(mode="json") == told
    promised = {"kind", "summary", "confidence", "rank", "node", "gpu", "peer", "evidence"}
    assert promised <= set(schema["$defs"]["Cause"]["required"])
    assert {"root_cause", "consequences", "checks", "fixes", "retry"} <= set(schema["required"])
    assert schema["$defs"]["Confidence"]["enum"] == ["unknown", "possible", "likely", "certain"]
    assert all(field.get("description") for field in schema["$defs"]["Read"]["properties"].values() if "items" in field)


def fits(told: object, part: dict, whole: dict) -> None:  # type: ignore[type-arg]
    """Fails where a value is not as the schema says, as far as this schema has words."""
    if "$ref" in part:
        return fits(told, whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in part:
        kinds = {"null": type(None), "string": str, "integer": int}
        name = next(name for name, kind in kinds.items() if isinstance(told, kind) or name == "integer")
        fitting = next(each for each in part["anyOf"] if each.get("type", "string") == name)
        return None if "type" in fitting else fits(told, fitting, whole)
    if "enum" in part:
        assert told in part["enum"]
    elif part["type"] == "object":
        assert isinstance(told, dict)
        assert set(part["required"]) == set(part["properties"]) == set(told)
        for name, value in told.items():
            fits(value, part["properties"][name], whole)
    elif part["type"] == "array":
        assert isinstance(told, list)
        for each in told:
            fits(each, part["items"], whole)
    else:
        assert type(told) is {"string": str, "integer": int}[part["type"]]
    return None


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "nothing to read"),
        (("x.log", "--beside"), "--beside is for a Slurm job"),
        (("--job", "x; reboot"), "is no Slurm job"),
        (("missing.log",), "no such file"),
    ],
)
def test_wrong_use_says_what_to_do(muster: Muster, argv: tuple[str, ...], says: str) -> None:
    code, out, err = muster("diagnose", *argv)
    assert code is Exit.USAGE
    assert out == ""
    assert says in err


def test_a_page_that_cannot_be_written_is_an_error_and_no_answer(muster: Muster, tmp_path: Path) -> None:
    code, _, err = muster("diagnose", str(LOGS / "hang"), "--html", str(tmp_path / "none" / "page.html"))
    assert code is Exit.ERROR
    assert "No such file or directory" in err


def test_a_schema_of_something_else_is_refused_and_the_specs_is_the_first(muster: Muster) -> None:
    assert muster("schema", "nonsense")[0] is Exit.USAGE
    assert muster("schema")[1] == muster("schema", "spec")[1]


def test_json_is_told_also_where_the_page_cannot_be_written(muster: Muster, tmp_path: Path) -> None:
    code, out, said = muster("diagnose", str(LOGS / "hang"), "--json", "--html", str(tmp_path / "gone" / "page.html"))
    assert code is Exit.ERROR
    assert json.loads(out)["root_cause"]["kind"] == "storage.stale"
    assert "page.html" in said
