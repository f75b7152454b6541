"""Every error has its file, line and field, and all of them come at once."""

import time
from pathlib import Path

import pytest
import yaml

from spec.document import LARGEST, unwritten
from spec.document import written as as_text
from spec.load import MOST, SpecErrors, dump, load, locate, schema
from spec.proofs.check import check
from spec.schema import Cluster


def errors(path: Path, read=load):
    with pytest.raises(SpecErrors) as raised:
        read(path)
    return raised.value.errors


def places(path: Path, read=load):
    return [(error.line, error.field) for error in errors(path, read)]


def line_of(path: Path, text: str, nth: int = 0) -> int:
    return [i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line][nth]


def test_a_spec_with_five_errors_of_five_kinds_gives_five_errors_with_their_lines(clusters, tmp_path):
    text = (clusters / "lab-containers.yaml").read_text()
    for good, bad in {
        "kind: tcp": "kind: tpc",  # a value that is not one
        "    count: 2\n    roles: [storage]": "    cuont: 2\n    roles: [storage]",  # a key misspelt
        "  mount: /scratch\n": "  mount: /scratch\n  mtu: 1500\n",  # two fields that do not agree
        "racks: [rack-a, rack-b]": "racks: [rack-a, rack-x]",  # a name that nothing declares
        "pins: lab\n": "",  # something missing
    }.items():
        assert text.count(good) == 1, good
        text = text.replace(good, bad)
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    assert places(path, check) == [
        (1, "pins"),
        (line_of(path, "kind: tpc"), "networks.fabric.kind"),
        (line_of(path, "mtu: 9000", 1), "networks.storage.mtu"),
        (line_of(path, "cuont"), "nodes[1].cuont"),
        (line_of(path, "rack-x"), "nodes[2].racks[1]"),
    ]
    found = errors(path, check)
    assert str(found[2]).startswith(
        f"{path}:{found[2].line}: networks.storage.mtu: 9000, but the filesystem declares 1500\n    set it to 1500 here"
    )
    assert "did you mean count?" in found[3].advice
    assert "did you mean tcp?" in found[1].advice


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"# only a comment\n", "empty"),
        (b"- a\n- b\n", "mapping"),
        (b"just words", "mapping"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "UTF-8"),
        (b"a: \x00", "character"),
        (b"a: [1, 2", "not YAML"),
        (b"a: 1\n b: 2\n", "not YAML"),
        (b"a: &x 1\nb: *x\n", "anchor"),
        (b"b: *x\n", "alias"),
        (b"a: !!python/object/apply:os.system [id]\n", "tag"),
        (b"a: !Ref b\n", "tag"),
        (b"a: 1\n---\nb: 2\n", "second document"),
        (b"? [a, b]\n: 1\n", "key"),
        (b"a: " + b"[" * 100 + b"]" * 100, "nested"),
        (b"[" * 200_000, "YAML"),
        (b"#" * (LARGEST + 1), "larger"),
    ],
)
def test_a_file_that_cannot_be_a_spec_is_one_error_that_says_why(tmp_path, content, says):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    found = errors(path)
    assert len(found) == 1
    assert says in found[0].what
    assert found[0].advice


def test_an_alias_bomb_is_refused_before_it_grows(tmp_path):
    path = tmp_path / "bomb.yaml"
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    path.write_text("\n".join(rows))
    assert "anchor" in errors(path)[0].what


@pytest.mark.parametrize("path", ["/nowhere/x.yaml", "/", "/etc/passwd/x", "a\0b"])
def test_a_path_without_a_file_is_an_error_and_not_a_traceback(path):
    assert len(errors(Path(path))) == 1


@pytest.mark.parametrize("value", ["true", '"2"', "2.5", "two", "[2]", "{a: 2}", "null", ".inf", "2001-01-01", "1e400"])
def test_a_value_of_another_type_is_never_taken_for_a_number(written, site, value):
    site["networks"]["fabric"]["rails"] = "VALUE"
    path = written(yaml.safe_dump(site, sort_keys=False).replace("VALUE", value))
    assert places(path) == [(line_of(path, "rails:"), "networks.fabric.rails")]
    assert "whole number from 1 to 16" in errors(path)[0].advice


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("networks.fabric.cidr", "10.0.0.1/8", "host bits"),
        ("networks.fabric.mtu", 500, "from 1280 to 9216"),
        ("networks.fabric.job_ports", "100-50", "ports run"),
        ("networks.fabric.job_ports", [1, 2], "first-last"),
        ("networks.storage.bond.mode", "802.3", "802.3ad"),
        ("nodes[0].name", "Node_1", "a-z"),
        ("nodes[1].roles[0]", "disk", "control, storage"),
        ("nodes[2].gpus.model", "a\x01b", "matches"),
        ("certificate", {"lifetime": "P400D"}, "duration"),
        ("filesystem.replicas", None, "whole number"),
    ],
)
def test_a_wrong_value_is_blamed_on_its_own_line_with_what_is_allowed(written, site, field, value, advice):
    put(site, field, value)
    path = written(site)
    found = errors(path)
    assert len(found) == 1, found
    assert found[0].field.startswith(field)
    assert found[0].line == locate(path, found[0].field) > 1
    assert advice in found[0].advice + found[0].what


def put(data, field, value):
    *way, last = unwritten(field)
    for step in way:
        data = data.setdefault(step, {}) if isinstance(data, dict) else data[step]
    data[last] = value


def test_a_key_given_twice_is_an_error_even_where_both_agree(written, site):
    path = written(yaml.safe_dump(site, sort_keys=False) + "pins: lab\n")
    found = errors(path)
    assert [(error.field, error.line) for error in found] == [("pins", line_of(path, "pins: lab", 1))]
    assert f"line {line_of(path, 'pins: lab')}" in found[0].what


def test_a_required_key_misspelt_is_one_error_not_two(written, site):
    site["networks"]["fabric"]["cird"] = site["networks"]["fabric"].pop("cidr")
    found = errors(written(site))
    assert [error.field for error in found] == ["networks.fabric.cird"]
    assert "did you mean cidr?" in found[0].advice


def test_something_missing_is_blamed_on_the_line_of_what_should_hold_it(written, site):
    del site["networks"]["storage"]["cidr"]
    path = written(site)
    assert places(path) == [(line_of(path, "storage:"), "networks.storage.cidr")]


@pytest.mark.parametrize(
    ("field", "value", "blamed"),
    [
        ("nodes[1].name", "control", "nodes[1].name"),
        ("nodes[1].racks[2]", "s9", "nodes[1].racks[2]"),
        ("facility.racks[1].name", "s1", "facility.racks[1].name"),
        ("facility.racks[0].pdus[1]", "p9", "facility.racks[0].pdus[1]"),
        ("facility.pdus[3].name", "p3", "facility.pdus[3].name"),
        ("nodes[2].nics.rdma_devices", ["mlx5_0"], "nodes[2].nics.rdma_devices"),
        ("nodes[0].roles", ["control", "control"], "nodes[0].roles"),
        ("networks.fabric.cidr", "10.64.0.0/30", "networks.fabric.cidr"),
    ],
)
def test_fields_that_contradict_each_other_are_found_and_placed(written, site, field, value, blamed):
    put(site, field, value)
    path = written(site)
    found = errors(path)
    assert blamed in [error.field for error in found]
    assert all(error.line == locate(path, error.field) for error in found)


def test_what_follows_from_an_error_is_not_an_error_of_its_own(written, site):
    site["filesystem"]["monitors"] = "three"  # what stands in for it must not be called an even quorum
    site["nodes"][1]["count"] = -1  # nor one storage node too few
    assert [field for _, field in places(written(site), check)] == ["nodes[1].count", "filesystem.monitors"]


def test_a_field_that_is_not_written_is_found_at_what_encloses_it(clusters):
    path = clusters / "lab-containers.yaml"
    assert locate(path, "networks.storage.switch_mtu") == line_of(path, "  storage:")
    assert locate(path, "nodes[1].count") == line_of(path, "count: 2")
    assert locate(path, "nothing.like.this") == 1


def test_words_of_yaml_mean_what_they_look_like(written, site):
    site["name"] = "WORD"
    for word in ("no", "on", "y", "0x10", "1-2-3", "null-1"):
        text = yaml.safe_dump(site, sort_keys=False).replace("WORD", word)
        assert load(written(text)).name == word


def test_a_spec_written_out_and_read_again_is_the_same(clusters, written):
    for name in ("lab", "lab-containers", "lab-wide", "h100-roce-1024"):
        cluster = load(clusters / f"{name}.yaml")
        assert load(written(dump(cluster))) == cluster


def test_a_byte_order_mark_and_windows_lines_are_read(written, site):
    text = yaml.safe_dump(site, sort_keys=False).replace("\n", "\r\n")
    assert load(written("\ufeff" + text)).name == "site"


def test_paths_of_fields_can_be_written_and_read(clusters):
    for path in ((), ("a",), ("nodes", 0, "nics", "fabric"), ("a", 3, 4, "b_c")):
        assert unwritten(as_text(path)) == path


def test_the_schema_is_what_the_loader_takes(site):
    found = schema()
    assert set(found["required"]) <= set(site) <= set(found["properties"])
    assert set(found["properties"]) == {field.alias or name for name, field in Cluster.model_fields.items()}
    assert found["additionalProperties"] is False
    found["properties"].clear()  # what a caller does with it is its own affair
    assert schema()["properties"]


def test_a_large_file_is_read_quickly(written, site):
    text = yaml.safe_dump(site, sort_keys=False)
    more = "".join(f"  - {{name: r{i}, pdus: [p1, p2], cooling_zone: zone-{i}}}\n" for i in range(10_000))
    path = written(text.replace("facility:\n  racks:\n", f"facility:\n  racks:\n{more}"))
    started = time.process_time()
    assert len(load(path).facility.racks) == 10_007
    assert time.process_time() - started < 3


def test_a_file_with_ten_thousand_errors_is_answered_quickly_and_at_bearable_length(written, site):
    text = yaml.safe_dump(site, sort_keys=False)
    path = written(text + "".join(f"key-{i}: [a, b]\n" for i in range(10_000)))
    started = time.process_time()
    found = errors(path)
    assert time.process_time() - started < 3
    assert len(found) == MOST + 1
    assert "9,900 more" in found[-1].what
