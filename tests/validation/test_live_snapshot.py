"""A snapshot is kept and read again as it was; what is none, or hostile, is left out and never believed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_snapshots import diagnosed, job

from validation.diagnose.job import read_job
from validation.diagnose.live.snapshot import LARGEST, parse, read, save
from validation.diagnose.sources import SourceError


def test_what_was_kept_gives_the_same_answer_and_logs_beside_it_count_too(tmp_path: Path) -> None:
    snapshots = job({3: {"state": "T"}}, world=16)
    paths = save(snapshots, tmp_path / "kept")
    assert [read(each) for each in paths] == snapshots
    assert read_job([tmp_path / "kept"]) == diagnosed(snapshots)
    log = tmp_path / "kept" / "gpu-1-kern.log"
    log.write_text("2026-11-30T14:01:00+00:00 gpu-1 kernel: nfs: server store-0 not responding, still trying\n")
    both = read_job([tmp_path / "kept"])
    assert {both.root_cause.kind, *(each.kind for each in both.others)} >= {"program.stopped", "storage.stale"}
    assert both.root_cause.kind == read_job([log], live=snapshots).root_cause.kind


def test_what_is_none_is_left_out_with_why_and_the_rest_is_read(tmp_path: Path) -> None:
    save(job({3: {"state": "T"}}), tmp_path)
    for name, text in (
        ("x", "{}"),
        ("y", "not json"),
        ("z", '{"kind": "muster.snapshot", "version": 2}'),
        ("w", "[" * 9999),
    ):
        (tmp_path / f"muster-snapshot-{name}.json").write_text(text)
    found = read_job([tmp_path])
    assert found.root_cause.rank == 3
    assert len([each for each in found.read.left_out if "no snapshot of version 1" in each]) == 4


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".hidden", "x\ny"])
def test_a_node_whose_name_would_lead_elsewhere_is_refused(name: str) -> None:
    told = json.loads(job()[0].model_dump_json()) | {"node": name}
    with pytest.raises(SourceError, match="node"):
        parse(json.dumps(told).encode(), "it")


def test_texts_are_cut_and_cannot_rule_a_terminal() -> None:
    told = json.loads(job()[0].model_dump_json()) | {"missed": ["\x1b[2J" + "x" * 9999]}
    text = parse(json.dumps(told).encode(), "it").missed[0]
    assert len(text) == 400
    assert text.isprintable()


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "muster-snapshot-x.json"
    with path.open("wb") as file:
        file.truncate(LARGEST + 2)
    with pytest.raises(SourceError, match="larger than"):
        read(path)


@given(st.data())
def test_a_snapshot_with_anything_in_it_is_read_or_refused(data: st.DataObject) -> None:
    told = json.loads(job({1: {"state": "D"}}, world=2, per_node=2)[0].model_dump_json())
    at = data.draw(st.sampled_from([told, told["ranks"][0], told["ranks"][1]["threads"][0]]))
    name = data.draw(st.sampled_from(sorted(at)) | st.text(max_size=3))
    anything = st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)
    at[name] = data.draw(anything | st.dictionaries(st.text(max_size=3), anything, max_size=2))
    try:
        said = diagnosed([parse(json.dumps(told).encode(), "it")]).root_cause.summary
    except SourceError as wrong:
        said = str(wrong)
    assert len(said) < 600
