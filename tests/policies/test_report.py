"""One run in three forms: they count the same, show what is not known, and nothing that a node says gets loose."""

import json
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_pages import HOSTILE, Reader
from sample_runs import CONTROLS, NOW, PLAN, cluster, examination, fabric, run, verdict, verdicts

from policies.drift import compare
from policies.evidence import Run
from policies.fabric import FaultKind, Finding, PairTest
from policies.report import Matrix, data, junit, matrix, page, write_report
from policies.report.names import fold
from policies.report.page import tasks
from policies.report.visible import value, visible
from policies.verdict import State, WaiverNote
from spec.plan import derive


def read(run_: Run) -> tuple[Reader, Matrix]:
    table = matrix(run_)
    return Reader(page(run_, table)), table


def mixed() -> Run:
    """Every state once or more, a node that is missing, and one that nobody planned."""
    note = WaiverNote(id="w-1", reason="the host's clock", expires=NOW + timedelta(days=2), real=State.FAIL)
    judged = (
        *verdicts("gpu-0", gpu__count=State.FAIL, kernel__uptime=State.NOT_APPLICABLE),
        *verdicts("gpu-1", gpu__count=State.ERROR)[:-1],
        verdict("time.offset", "gpu-1", State.WAIVED, waiver=note),
        *(verdict(each, "storage-0", State.UNREACHABLE) for each in CONTROLS),
        *verdicts("control-0"),
        verdict("gpu.count", "stranger"),
    )
    return run(judged=judged)


def test_html_json_and_junit_count_the_same(tmp_path: Path) -> None:
    told = mixed()
    table = matrix(told)
    totals = table.totals
    assert sum(totals.values()) == len(table.nodes) * len(table.controls) == 6 * 4
    assert totals == {
        State.PASS: 9,
        State.FAIL: 1,
        State.ERROR: 1,
        State.UNREACHABLE: 4,
        State.NOT_EVALUATED: 7,
        State.NOT_APPLICABLE: 1,
        State.WAIVED: 1,
    }
    paths = write_report(told, tmp_path)
    written = json.loads(paths.json.read_text())
    assert written["totals"] == {state.value: count for state, count in totals.items()}
    assert Counter(each["state"] for each in written["verdicts"]) == {k: v for k, v in written["totals"].items() if v}

    suites = {each.get("name"): each for each in Xml.parse(paths.junit).getroot()}  # noqa: S314 - written just now
    nodes = [suites[node] for node in table.nodes]
    counted = {
        key: sum(int(suite.get(key, 0)) for suite in nodes) for key in ("tests", "failures", "errors", "skipped")
    }
    assert counted == {
        "tests": 24,
        "failures": totals[State.FAIL],
        "errors": totals[State.ERROR] + totals[State.UNREACHABLE] + totals[State.NOT_EVALUATED],
        "skipped": totals[State.WAIVED] + totals[State.NOT_APPLICABLE],
    }

    reader = Reader(paths.html.read_text())
    classes = Counter(
        told for tag, name, told in reader.attributes if name == "class" and tag in ("i", "a") and told.startswith("s-")
    )
    assert classes == {f"s-{state.value}": count for state, count in totals.items() if count}
    for said in ("passed 9", "failed 1", "could not be reached 4", "not evaluated 7", "waived 1", "does not apply 1"):
        assert said in reader.text


def test_a_run_without_verdicts_shows_nothing_as_good() -> None:
    told = run(judged=()).model_copy(update={"verdicts": ()})
    table = matrix(told)
    assert table.totals[State.NOT_EVALUATED] == len(PLAN.nodes)
    root = Xml.fromstring(junit(told, table))  # noqa: S314 - written just now
    assert int(root.get("errors", 0)) >= len(PLAN.nodes)
    assert "NO-GO" in page(told, table)


def test_a_node_without_a_verdict_is_not_evaluated_and_an_unreachable_one_says_why() -> None:
    told = run(judged=verdicts("gpu-0"))
    told = told.model_copy(update={"examinations": (examination("gpu-1", unreachable="timed out"),)})
    table = matrix(told)
    assert {each.state for each in table.row("control-0")} == {State.NOT_EVALUATED}
    assert {(each.state, each.reason) for each in table.row("gpu-1")} == {(State.UNREACHABLE, "timed out")}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_verdicts_on_one_control_the_worse_counts(order: int) -> None:
    both = (verdict("gpu.count"), verdict("gpu.count", state=State.FAIL))
    assert matrix(run(judged=both[::order])).cell("gpu-0", "gpu.count").state is State.FAIL


def test_junit_says_error_where_nothing_is_known_and_tells_waivers_from_passes() -> None:
    told = mixed()
    root = Xml.fromstring(junit(told, matrix(told)))  # noqa: S314 - written just now
    cases = {
        (suite.get("name"), case.get("name")): [(child.tag, child.get("message", "")) for child in case]
        for suite in root
        for case in suite
    }
    assert cases["control-0", "gpu.count"] == []
    assert cases["gpu-0", "gpu.count"][0][0] == "failure"
    assert cases["gpu-1", "gpu.count"][0][0] == "error"
    assert cases["storage-0", "gpu.count"][0][0] == "error"
    assert cases["storage-1", "gpu.count"][0][0] == "error"
    tag, message = cases["gpu-1", "time.offset"][0]
    assert tag == "skipped"
    assert "w-1 until 2026-12-01" in message
    assert "really fail" in message
    assert cases["gate", "lab gate"][0][0] == "failure"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_node_says_is_shown_and_never_run(text: str) -> None:
    judged = (
        *verdicts("gpu-0"),
        verdict(
            "gpu.count", "gpu-1", State.FAIL, found={text: [text]}, reason=text, expected=text, repair=text, title=text
        ),
        verdict("gpu.ecc.uncorrected", "gpu-1", found=text),
        verdict("gpu.count", text[:200], State.ERROR, reason=text),
    )
    result = fabric(
        state=State.FAIL,
        reason=text[:2000],
        pairs=(PairTest(a=text, b="gpu-1", rail=0, gbps=None, floor_gbps=1, reason=text[:2000]),),
        findings=(Finding(kind=FaultKind.NODE, subject=text[:2000], nodes=(text,), evidence=text[:2000]),),
    )
    drift = compare((text,), {}, {}, {}, {}, None, NOW)
    told = run(judged=judged, fabric=result, drift=drift, topology=f"<svg><script>{text}</script></svg>")
    reader, table = read(told)
    assert reader.tags["script"] == 0
    assert reader.tags["style"] == 1
    assert reader.tags["img"] == 1
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    html = page(told, table)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]", html)
    assert "49" not in re.findall(r"found (\d+)\b", reader.text)
    Xml.fromstring(junit(told, table))  # noqa: S314 - written just now
    json.dumps(data(told, table))


def test_the_page_needs_nothing_beside_it() -> None:
    reader, table = read(run(topology="<svg xmlns='http://www.w3.org/2000/svg'/>"))
    assert all(told.startswith("#") for told in reader.values("href"))
    assert all(told.startswith("data:image/svg+xml;base64,") for told in reader.values("src"))
    assert reader.tags["link"] == reader.tags["script"] == reader.tags["iframe"] == 0
    html = page(run(), table)
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_every_link_of_the_page_leads_somewhere_and_no_id_comes_twice() -> None:
    reader, _ = read(mixed())
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert {told.removeprefix("#") for told in reader.values("href")} <= set(ids)


def test_each_state_has_a_sign_of_its_own_beside_its_colour() -> None:
    html = page(mixed(), matrix(mixed()))
    signs = dict(re.findall(r'class="s-(\w+)"[^>]*>([^<])</', html))
    assert len(signs) == len(set(signs.values())) == len(State)


def test_what_is_simulated_is_said_on_top() -> None:
    reader, _ = read(run())
    top = reader.text[: reader.text.index("Nodes certified")]
    assert "GO" in top
    for said in ("GPUs are simulated", "rails carry TCP", "gloo stands in for NCCL", "never the hardware"):
        assert said in top


def test_a_run_whose_gate_was_not_asked_is_no_go_by_any_look() -> None:
    reader, _ = read(run(gate=None))
    assert "nothing is decided" in reader.text
    assert not re.search(r"\bGO\b", reader.text)


def test_a_hundred_and_twenty_eight_nodes_fit_into_five_megabytes() -> None:
    plan = derive(cluster(gpu=128))
    controls = tuple(f"area{i % 9}.control_{i}" for i in range(45))
    reason = "something long that a node has to say of itself, again and again " * 5
    judged = tuple(
        verdict(each, node.name, State.FAIL if (i + j) % 3 else State.PASS, reason=reason, found=reason, repair=reason)
        for i, node in enumerate(plan.nodes)
        for j, each in enumerate(controls)
    )
    told = run(plan, judged=judged)
    assert len(page(told, matrix(told)).encode()) < 5_000_000


def test_a_node_of_which_nothing_is_known_is_one_task_and_not_one_a_control() -> None:
    found = tasks(matrix(mixed()))
    assert [(each.control, each.state, each.nodes) for each in found] == [
        ("gpu.count", State.FAIL, ("gpu-0",)),
        ("gpu.count", State.ERROR, ("gpu-1",)),
        ("examination", State.UNREACHABLE, ("storage-0",)),
        ("examination", State.NOT_EVALUATED, ("storage-1",)),
        ("gpu.ecc.uncorrected", State.NOT_EVALUATED, ("stranger",)),
        ("kernel.uptime", State.NOT_EVALUATED, ("stranger",)),
        ("time.offset", State.NOT_EVALUATED, ("stranger",)),
    ]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu-0"], "gpu-0"),
        (["gpu-3", "gpu-0", "gpu-1", "gpu-2", "gpu-7"], "gpu-[0-3,7]"),
        (["control", "gpu-0", "gpu-1"], "gpu-[0-1], control"),
        (["gpu-00", "gpu-01"], "gpu-00, gpu-01"),
        ([], ""),
    ],
)
def test_names_are_folded_as_schedulers_write_them(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@given(st.text(), st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_visible_text_is_printable_and_bounded(text: str, limit: int) -> None:
    shown = visible(text, limit)
    assert len(shown) <= limit + 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    if text.isascii() and text.isprintable() and len(text) <= limit:
        assert shown == text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, ""),
        (True, "true"),
        (0.1 + 0.2, "0.3"),
        ({"gpu-3": 2, "gpu-5": 1.0}, "gpu-3: 2, gpu-5: 1"),
        (["tcp/22", 7], "tcp/22, 7"),
        ({"a": {"b": [1]}}, 'a: {"b": [1]}'),
    ],
)
def test_values_are_shown_in_words(found: Any, words: str) -> None:
    assert value(found) == words
