"""The fabric's pictures."""

import re
from xml.etree import ElementTree as Xml

import pytest
from sample_runs import fabric, sweep

from policies.fabric import PairTest, SweepPoint
from policies.report.pictures import FEW_PAIRS, curve, pairs, size

NODES = ("gpu-0", "gpu-1")


def pair(i: int, gbps: float | None = 0.9, rail: int = 0) -> PairTest:
    return PairTest(a=f"gpu-{i}", b=f"gpu-{i + 1}", rail=rail, gbps=gbps, floor_gbps=0.8, reason="")


def drawn(svg: str) -> Xml.Element:
    return Xml.fromstring(f"<p>{svg}</p>")  # noqa: S314 - drawn just now


def test_few_pairs_are_rows_with_their_figures() -> None:
    svg = pairs(fabric().pairs)
    drawn(svg)
    assert re.findall(r'class="figure [^"]*">([^<]+)<', svg) == ["0.81", "0.94"]


def test_what_is_slow_or_silent_or_untested_looks_like_nothing_else() -> None:
    svg = pairs([pair(0), pair(0, 0.5, rail=1), pair(1, None), pair(2, 0.8, rail=1)])
    shades = re.findall(r'<rect [^>]*class="(\w+)"', svg)
    assert shades == ["heat4", "low", "silent", "untested", "untested", "heat0"]
    assert "0.5 ✕" in svg


def test_many_pairs_are_one_map_a_rail_and_every_fault_is_in_it() -> None:
    tests = [pair(i, 0.5 if i == 7 else 0.9, rail) for i in range(FEW_PAIRS + 1) for rail in (0, 1, 2)]
    svg = pairs(tests)
    root = drawn(svg)
    assert len(root) == 3
    for chart in root:
        assert len([each for each in chart if each.get("class") == "low"]) == 2
        assert [each.get("class") for each in chart if each.tag == "rect"][-2:] == ["low", "low"]


@pytest.mark.parametrize("points", [1, 2, 30])
def test_a_curve_stays_within_its_frame(points: int) -> None:
    told = tuple(SweepPoint(bytes=8 << i, algbw=i, busbw=i * 12.5, wrong=i % 2, repeats=3) for i in range(points))
    svg = curve(sweep(NODES, points=told, plateau=None, floor=400))
    root = drawn(svg)
    for circle in root.iter("circle"):
        assert 0 <= float(circle.get("cx", -1)) <= 640
        assert 0 <= float(circle.get("cy", -1)) <= 280
    assert len([each for each in root.iter("circle") if each.get("class") == "wrong"]) == points // 2


def test_nothing_measured_is_no_picture() -> None:
    assert pairs([]) == ""
    assert curve(sweep(NODES, points=(), plateau=None)) == ""


def test_a_fabric_of_zeros_can_still_be_drawn() -> None:
    drawn(pairs([pair(0, 0.0)]))
    drawn(curve(sweep(NODES, points=(SweepPoint(bytes=8, algbw=0, busbw=0, wrong=0, repeats=1),), floor=1e-9)))


def test_sizes_are_in_words() -> None:
    assert [size(each) for each in (8, 1024, 1536, 4 << 20, 16 << 30)] == ["8 B", "1 KiB", "1.5 KiB", "4 MiB", "16 GiB"]
