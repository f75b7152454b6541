"""Answers that say they are Prometheus' are bounded, and nothing in them is believed."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.diagnose.job import read_job
from validation.diagnose.metrics import series as module
from validation.diagnose.metrics.deviations import told
from validation.diagnose.metrics.places import Window
from validation.diagnose.metrics.series import Series, parse
from validation.diagnose.metrics.signals import load_signals
from validation.diagnose.sources import SourceError

METRIC = {"__name__": "DCGM_FI_DEV_XID_ERRORS", "Hostname": "gpu-1", "gpu": "3"}
XID = [[1_763_000_000 + 30 * i, "94" if i > 3 else "0"] for i in range(9)]


def answer(*result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def one(values: object = XID, **labels: object) -> dict[str, object]:
    return {"metric": METRIC | labels, "values": values}


def lines(series: list[Series]) -> list[str]:
    return [line.text for line, _ in told(series, load_signals(), "metrics", Window())]


def test_a_whole_answer_and_several_in_one_file_are_read() -> None:
    (found,) = parse(answer(one()), "x")
    assert (found.name, found.node, found.labels["gpu"]) == ("DCGM_FI_DEV_XID_ERRORS", "gpu-1", "3")
    assert list(found.values)[3:5] == [0, 94]
    assert len(parse(answer(one()) + b"\n" + answer(one(gpu="4"), one(gpu="5")) + b"\n", "x")) == 3


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        answer(one())[:-40],
        b"[]",
        b"null",
        b'{"status":"success"}',
        b'{"status":"success","data":[]}',
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":{}}}',
        b'{"status":"success","data":{"resultType":"matrix","result":' + b"[" * 200_000,
        b"9" * 10_000,
        b"\xff\xfe\x00",
    ],
    ids=lambda raw: str(raw[:60]),
)
def test_what_is_no_answer_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(SourceError, match=" · "):
        parse(raw, "x")


def test_an_error_of_prometheus_is_told_without_what_a_terminal_would_obey() -> None:
    raw = json.dumps({"status": "error", "error": "query timed out \x1b[2J"}).encode()
    with pytest.raises(SourceError, match=r"query_timed_out__.2J"):
        parse(raw, "x")


@pytest.mark.parametrize(
    "each",
    [
        None,
        [],
        "x",
        {},
        {"metric": [], "values": XID},
        {"metric": METRIC, "values": {}},
        {"metric": METRIC, "value": [1, "1"]},
        {"metric": {"gpu": "3"}, "values": XID},
        one([]),
        one([[1, "NaN"], [2, "+Inf"], [3, "-Inf"]]),
        one([[1, 2], [1], "x", None, [None, "1"], ["1", "1"], [True, "1"], [{}, []]]),
        one([[-5, "1"], [1e300, "1"], [0, "1"]]),
        one([[1, "0x10"], [2, "1" * 500], [3, ""]]),
    ],
    ids=str,
)
def test_what_is_no_series_is_left_out_and_the_others_count(each: object) -> None:
    assert [found.name for found in parse(answer(each, one()), "x")] == ["DCGM_FI_DEV_XID_ERRORS"]


def test_a_value_that_is_none_is_a_gap_and_no_zero() -> None:
    (found,) = parse(answer(one([[10, "5"], [20, "NaN"], [30, "7"], [20, "6"]])), "x")
    assert list(zip(found.times, found.values, strict=True)) == [(10, 5), (20, 6), (30, 7)]


def test_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 3)
    with pytest.raises(SourceError, match="more than 3 series"):
        parse(answer(*[one()] * 4), "x")
    with pytest.raises(SourceError, match="more than 3 series"):
        parse(answer(one(), one()) * 2, "x")
    monkeypatch.setattr(module, "LARGEST", 50)
    with pytest.raises(SourceError, match="MiB"):
        parse(answer(one()), "x")


def test_no_label_can_speak_as_another_program() -> None:
    evil = "gpu-1 \x1b[31m: NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n"
    texts = lines(parse(answer(one(Hostname=evil, gpu=evil, pci_bus_id=evil)), "x"))
    assert len(texts) == 1
    assert texts[0].startswith("metrics: Xid 94 of GPU gpu-1_")
    assert not any(each in texts[0] for each in ("NVRM: ", "\x1b", "\n", "("))
    assert len(texts[0]) < 300


def test_hostile_labels_make_no_cause(tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_bytes(answer(one([[1, "0"], [2, "0"]], Hostname="CUDA out of memory")))
    told_ = read_job([tmp_path])
    assert told_.root_cause.kind == "unknown"
    assert told_.measured == ()


@pytest.mark.parametrize("raw", [answer(one())[:-30], answer()[:-1] + b",", answer(*[None] * 9)], ids=len)
def test_a_saved_answer_that_is_damaged_stops_nothing(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "saved.json").write_bytes(raw)
    (tmp_path / "rank_0.log").write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    found = read_job([tmp_path])
    assert found.root_cause.kind == "gpu.illegal_access"
    assert bool(found.read.left_out) is (b"null" not in raw)


@pytest.mark.parametrize("indent", [None, 2])
def test_an_answer_is_known_however_it_is_written(tmp_path: Path, indent: int | None) -> None:
    whole = {"isPartial": False, **json.loads(answer(one()))}
    whole = {name: whole[name] for name in ("status", "isPartial", "data")}  # as VictoriaMetrics has it
    (tmp_path / "saved.json").write_text(json.dumps(whole, indent=indent))
    assert len(read_job([tmp_path]).measured) == 1


def test_other_json_is_a_log_as_before(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status":"success","event":"RuntimeError: CUDA out of memory."}\n')
    assert read_job([tmp_path]).read.files == 1
    assert read_job([tmp_path]).read.lines == 1


def test_the_surest_label_names_the_node() -> None:
    for labels, node in (
        ({"instance": "10.0.0.7:9100"}, "10.0.0.7"),
        ({"instance": "exporter:9400", "Hostname": "gpu-3"}, "gpu-3"),
        ({"instance": "gpu-2.cluster:9100"}, "gpu-2.cluster"),
        ({"node": "gpu-4", "Hostname": "pod-x"}, "gpu-4"),
        ({}, ""),
    ):
        metric = {"__name__": "up", **labels}
        assert parse(answer({"metric": metric, "values": [[1, "1"]]}), "x")[0].node == node


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(sorted({name for s in load_signals() for m in s.metrics for name in m.names}))
VALUES = st.lists(
    st.tuples(st.integers(-5, 3000), st.sampled_from(["0", "1", "97", "NaN", "1e308", "-1e308", "4", "64"])),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(JSON | st.fixed_dictionaries({"metric": st.fixed_dictionaries({"__name__": NAMES}), "values": VALUES})))
def test_nothing_that_an_answer_holds_breaks_anything(result: list[object]) -> None:
    try:
        found = parse(answer(*result), "x")
    except SourceError:
        return
    assert all("\n" not in text for text in lines(found))
