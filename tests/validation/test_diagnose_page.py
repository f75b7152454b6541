"""The page of a diagnosis says what the diagnosis says, no surer than it is, and lets nothing loose."""

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_diagnoses import NOTHING, NOW, evidence, link_down
from sample_pages import HOSTILE, Reader

from validation.diagnose.axis import axis, length
from validation.diagnose.finding import Cause, Diagnosis
from validation.diagnose.kinds import Confidence
from validation.diagnose.page import SURE, page
from validation.diagnose.timeline import FEW, MOST_FOLDED, Sign, caption, timeline


def marks(svg: str) -> list[str]:
    return re.findall(r'class="sign (\w+)"', svg)


def labels(svg: str) -> list[str]:
    return re.findall(r'class="name[^"]*">([^<]*)<', svg)


def drawn(diagnosis: Diagnosis) -> Xml.Element:
    return Xml.fromstring(timeline(diagnosis))  # noqa: S314 - drawn just now


def test_everything_that_the_diagnosis_says_is_on_the_page() -> None:
    told = link_down(8)
    text = Reader(page(told)).text
    for said in (
        told.root_cause.summary, SURE[Confidence.LIKELY], "it hangs without an error", "mlx5_3", "10.0.3.12",
        "gpu-0-kern.log:900", "12 times", told.others[0].summary, told.consequences[0].summary, *told.checks,
        *told.fixes, "On other nodes", told.retry_why, "4,120", "1 rank behind", "1 rank left no line", "0-5,7",
        "logs/model.bin: binary", "88,123 lines",
    ):  # fmt: skip
        assert said in text
    for cause in (told.root_cause, *told.others, *told.consequences):
        for each in cause.evidence:
            assert f"{each.file}:{each.line}" in text
            assert each.text in text


@pytest.mark.parametrize("sure", Confidence)
def test_the_page_is_as_sure_as_the_diagnosis(sure: Confidence) -> None:
    told = link_down(8)
    told = told.model_copy(update={"root_cause": told.root_cause.model_copy(update={"confidence": sure})})
    html = page(told)
    (shown,) = re.findall(r'<div class="verdict">(\w+)</div>', html)
    assert shown.lower() == sure.value
    assert [words for words in SURE.values() if words in html] == [SURE[sure]]


def test_unknown_is_shown_as_unknown_and_names_nobody() -> None:
    text = Reader(page(NOTHING)).text
    for said in ("Unknown", "does not guess", "There is none", "There is nothing to show", "No fix is known"):
        assert said in text
    assert timeline(NOTHING) == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_log_says_is_shown_and_never_run(text: str) -> None:
    line = evidence(0, text[:400], node=text, file=text)
    cause = Cause(kind=text, summary=text, confidence=Confidence.LIKELY, rule=text, node=text, gpu=text, peer=text,
                  rail=text, evidence=(line,))  # fmt: skip
    told = link_down(8)
    told = told.model_copy(update={
        "root_cause": cause, "others": (cause,), "consequences": (cause,), "checks": (text,), "fixes": (text,),
        "retry_why": text, "read": told.read.model_copy(update={"left_out": (text,)}),
        "last_steps": tuple(each.model_copy(update={"file": text, "rank": None}) for each in told.last_steps),
    })  # fmt: skip
    html = page(told)
    reader = Reader(html)
    assert reader.tags["script"] == reader.tags["img"] == reader.tags["link"] == reader.tags["iframe"] == 0
    assert reader.tags["style"] == 1
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]", html)
    drawn(told)


@pytest.mark.parametrize("told", [link_down(8), link_down(1024), link_down(8, timed=False), NOTHING],
                         ids=["few", "many", "untimed", "nothing"])  # fmt: skip
def test_the_page_needs_nothing_beside_it_and_its_links_lead_somewhere(told: Diagnosis) -> None:
    html = page(told)
    reader = Reader(html)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert {each.removeprefix("#") for each in reader.values("href")} <= set(ids)
    assert reader.values("src") == []
    assert "default-src 'none'" in html
    assert "url(" not in html
    assert len(html.encode()) < 200_000


def test_few_ranks_have_a_row_each_with_their_marks() -> None:
    svg = timeline(link_down(8))
    assert labels(svg) == [*(f"rank {rank}" for rank in range(8)), "gpu-0"]
    found = marks(svg)
    assert {kind: found.count(kind) for kind in Sign} == {"cause": 2, "other": 1, "consequence": 6, "step": 7}
    assert re.findall(r'class="name blamed">([^<]*)<', svg) == ["rank 5", "gpu-0"]
    assert svg.count("left no line") == 1


def test_of_many_ranks_those_that_say_something_are_shown_and_the_rest_counted() -> None:
    told = link_down(1024)
    svg = timeline(told)
    shown = labels(svg)
    assert len(shown) <= FEW + MOST_FOLDED
    assert {"rank 513", "gpu-64", "rank 2", "rank 0"} <= set(shown)
    assert [each for each in shown if ":" in each] == ["rank 1022: no line", "1,016 ranks: step 4,120"]
    assert "0-511" not in shown
    assert "<title>ranks 6-512,514-1021,1023</title>" in svg


def test_more_that_say_something_than_there_are_rows_are_counted_too() -> None:
    told = link_down(8)
    lost = Cause(
        kind="peer.lost",
        summary="A peer closed its connection",
        confidence=Confidence.POSSIBLE,
        evidence=tuple(evidence(9, "Connection closed by remote peer", rank=rank) for rank in range(8, 108)),
    )
    told = told.model_copy(update={"consequences": (*told.consequences, lost)})
    shown = labels(timeline(told))
    assert {"rank 5", "gpu-0", "rank 2"} <= set(shown)
    counted = sum(int(found[1]) for each in shown if (found := re.match(r"(\d+) ranks: ", each)))
    rows = len([each for each in shown if re.fullmatch(r"rank \d+(: .*)?", each)])
    assert counted + rows == 108


def test_a_picture_that_shows_only_the_first_lines_says_so() -> None:
    assert "first 6 lines" in caption(link_down(1024))
    assert "first" not in caption(link_down(7))


def test_marks_lie_in_the_order_of_time_and_within_the_picture() -> None:
    root = drawn(link_down(1024))
    width = float(root.get("viewBox", "").split()[2])
    xs = [float(each.get("d", "").split(",")[0][1:]) for each in root.iter("path")]
    assert xs
    assert all(0 < x < width for x in xs)
    times = [NOW + timedelta(seconds=each) for each in (-20, 0, 3.4, 600, 600.25)]
    across = axis(times, 100, 1000)
    places = [across.x(each) for each in times]
    assert places == sorted(places)


def test_without_times_the_picture_says_that_it_is_no_time() -> None:
    told = link_down(8, timed=False)
    assert "no line has a time" in timeline(told)
    assert "says nothing of when" in caption(told)
    assert not re.search(r"\d\d:\d\d:\d\d", timeline(told))


def test_a_line_without_a_time_stands_apart_where_others_have_one() -> None:
    told = link_down(8)
    other = told.others[0].model_copy(update={"evidence": (evidence(None, "blocked", rank=2),)})
    told = told.model_copy(update={"others": (other,)})
    svg = timeline(told)
    assert "without time" in svg
    (odd,) = re.findall(r'<path d="M([\d.]+),[^"]*" class="sign other"', svg)
    rest = re.findall(r'<path d="M([\d.]+),[^"]*" class="sign (?:cause|consequence|step)"', svg)
    assert float(odd) > max(map(float, rest))
    assert "without time" not in timeline(link_down(8))


def test_a_long_time_without_a_line_is_cut_out_and_told() -> None:
    across = axis([NOW, NOW + timedelta(seconds=2), NOW + timedelta(seconds=602)], 0, 1000)
    assert [label for _, _, label in across.breaks] == ["10 min"]
    assert across.x(NOW + timedelta(seconds=2)) > 500


@given(
    st.lists(
        st.datetimes(
            min_value=NOW.replace(tzinfo=None) - timedelta(days=4000),
            max_value=NOW.replace(tzinfo=None) + timedelta(days=4000),
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None)  # fmt: skip
def test_any_times_have_places_in_their_order_and_few_labels(naive: list) -> None:  # type: ignore[type-arg]
    times = sorted(each.replace(tzinfo=NOW.tzinfo) for each in naive)
    across = axis(times, 100, 1000)
    places = [across.x(each) for each in times]
    assert places == sorted(places)
    assert all(100 <= each <= 1000.001 for each in places)
    assert len(across.ticks) <= 16
    assert all(99.9 <= x <= 1000.1 for x, _ in across.ticks)


@pytest.mark.parametrize(("seconds", "said"), [(0.25, "0.25 s"), (90, "90 s"), (600, "10 min"), (7200, "2 h")])
def test_lengths_of_time_are_said_in_their_unit(seconds: float, said: str) -> None:
    assert length(seconds) == said


@pytest.mark.skipif(not shutil.which("chromium"), reason="./setup --lab installs chromium")
def test_a_browser_opens_the_page_offline(tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.html"
    path.write_text(page(link_down(1024)))
    argv = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    argv += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    argv += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", f"file://{path}"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    for word in ("rank 513", "1,016 ranks", "Link down"):
        assert word in ran.stdout
    assert "Content Security Policy" not in ran.stderr
