"""A pair's bandwidth is the worse direction's, and half a result is none."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.fabric.iperf import read as read_iperf3

RECORDED = (Path(__file__).parent / "recorded" / "iperf3-3.12-bidir.json").read_bytes()


def test_the_worse_direction_of_a_real_run_counts():
    gbps, reason = read_iperf3(RECORDED)
    assert gbps == pytest.approx(6.1149, rel=1e-3)
    assert reason == ""


def test_a_refused_connection_is_no_figure_and_says_so():
    refused = {"start": {"connected": []}, "intervals": [], "end": {}, "error": "unable to connect: Connection refused"}
    assert read_iperf3(json.dumps(refused).encode()) == (None, "iperf3: unable to connect: Connection refused")


@given(st.integers(0, len(RECORDED) - 3))
def test_a_truncated_result_is_no_figure(length):
    assert read_iperf3(RECORDED[:length])[0] is None


@pytest.mark.parametrize("missing", ["sum_received", "sum_received_bidir_reverse"])
def test_one_direction_alone_is_no_figure(missing):
    said = json.loads(RECORDED)
    del said["end"][missing]
    assert read_iperf3(json.dumps(said).encode())[0] is None


@pytest.mark.parametrize("rate", ["fast", None, -1, float("nan"), float("inf"), 10**400, [], {}])
def test_what_is_no_rate_is_no_figure(rate):
    said = json.loads(RECORDED)
    said["end"]["sum_received"]["bits_per_second"] = rate
    assert read_iperf3(json.dumps(said).encode())[0] is None


@given(
    st.binary(max_size=200)
    | st.text().map(str.encode)
    | st.recursive(st.none() | st.integers(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_nothing_a_node_prints_raises(output):
    assert read_iperf3(output)[0] is None
