"""The stream between a node and its examiner: what is cut off, garbled or invented is never taken for whole."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.node.stream import LINE_LIMIT, LINES_LIMIT, STREAM_LIMIT, Stream, Writer, read

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def stream(*values: object) -> bytes:
    out = io.BytesIO()
    writer = Writer(out)
    writer.header(node="gpu-0", identity={})
    for index, value in enumerate(values):
        writer.measurement(measure=f"some.fact_{index}", outcome="measured", value=value)
    writer.close(finished="2026-11-29T12:00:00+00:00")
    return out.getvalue()


def values(told: Stream) -> list[object]:
    return [each["value"] for each in told.measurements]


@given(st.lists(JSON.filter(lambda value: "\ud800" not in json.dumps(value)), max_size=5))
def test_what_one_end_writes_the_other_reads(sent: list[object]) -> None:
    told = read(stream(*sent))
    assert told.fault is None
    assert values(told) == sent


def test_a_stream_cut_at_any_byte_is_not_complete() -> None:
    whole = stream(8, {"gpu-0": 0}, "text with \n in it", None)
    for length in range(len(whole)):
        told = read(whole[:length])
        assert told.fault, f"complete after {length} of {len(whole)} bytes"
        assert values(told) == [8, {"gpu-0": 0}, "text with \n in it", None][: len(told.measurements)]


def test_a_stream_with_any_byte_changed_is_either_refused_or_says_the_same() -> None:
    whole = stream(8, {"gpu-0": 0})
    truth = read(whole)
    for position in range(len(whole)):
        for byte in {whole[position] ^ 1, whole[position] ^ 0x20, 0, 10, 255} - {whole[position]}:
            told = read(whole[:position] + bytes([byte]) + whole[position + 1 :])
            assert told.fault or (told.header, told.measurements) == (truth.header, truth.measurements)


@given(st.binary(max_size=400))
def test_garbage_is_never_complete_and_never_raises(data: bytes) -> None:
    assert read(data).fault


def test_a_measurement_left_out_or_told_again_is_noticed() -> None:
    header, one, two, closing = stream(1, 2).splitlines(keepends=True)
    for lines in ([header, one, closing], [header, one, one, two, closing], [header, two, one, closing]):
        assert "does not fit" in (read(b"".join(lines)).fault or "")


def test_nothing_may_come_after_the_closing_record() -> None:
    for more in (b"x", b"\n", stream(1)):
        assert "went on" in (read(stream(1) + more).fault or "")


@pytest.mark.parametrize(
    "line",
    [
        b'{"record":"measurement","measure":"a.b","value":NaN}',
        b'{"record":"measurement","measure":"a.b","value":Infinity}',
        b'{"record":"measurement","measure":"a.b","measure":"c.d"}',
        b'{"record":"measurement","measure":"\\ud800"}',
        b'{"record":"measurement","value":' + b"9" * 5000 + b"}",
        b'{"record":"measurement","value":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"record":"gift"}',
        b'{"record":"header","protocol":"muster/suite/v1"}',
        b'["record"]',
        b"\xff\xfe",
        b"a" * (LINE_LIMIT + 1),
    ],
)
def test_a_line_that_is_not_to_be_believed_ends_the_reading(line: bytes) -> None:
    header, one, *_ = stream(1).splitlines(keepends=True)
    told = read(header + one + line + b"\n")
    assert (told.fault or "").startswith("line 3 ")
    assert values(told) == [1]


def test_another_protocol_is_refused() -> None:
    assert "muster/suite/v1" in (read(b'{"record":"header","protocol":"muster/suite/v2","node":"gpu-0"}\n').fault or "")


def test_floods_are_bounded() -> None:
    assert str(STREAM_LIMIT) in (read(b"x" * (STREAM_LIMIT + 1)).fault or "")
    header, one, _ = stream(1).splitlines(keepends=True)
    told = read(header + one * (LINES_LIMIT + 10))
    assert told.fault
    assert len(told.measurements) < LINES_LIMIT


def test_a_value_that_is_no_json_is_not_written() -> None:
    writer = Writer(io.BytesIO())
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.measurement(measure="a.b", value=float("nan"))
