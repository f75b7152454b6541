"""The time of a step is divided among its phases, and the parts never come to more than the whole."""

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import Jobs

from runtime.telemetry.overlap import Communication, Overlap
from runtime.telemetry.record import Step
from runtime.telemetry.steps import SPANS_LIMIT, Stopwatch

HERE = Path(__file__).parent
Tree = list[tuple[str, Any]]
NAMES = st.sampled_from(["data", "forward", "backward", "communication"])
TREES = st.recursive(st.just([]), lambda inner: st.lists(st.tuples(NAMES, inner), max_size=4), max_leaves=12)


def walk(watch: Stopwatch, tree: Tree) -> None:
    for name, inner in tree:
        with watch.phase(name):
            walk(watch, inner)


def done(watch: Stopwatch, number: int, **values: Any) -> Step:
    step = watch.done(number, **values)
    assert step is not None
    return step


@given(st.lists(TREES, min_size=1, max_size=3))
def test_parts_add_up_to_no_more_than_the_step_and_spans_lie_in_each_other(trees: list[Tree]) -> None:
    watch = Stopwatch()
    with watch.phase("data"):
        pass
    for number, tree in enumerate(trees):
        walk(watch, tree)
        step = done(watch, number)
        assert sum(step.parts.values()) <= step.end_ns - step.start_ns
        for span in step.spans:
            start, end = (step.start_ns, step.end_ns)
            if span.inside >= 0:
                start, end = step.spans[span.inside].start_ns, step.spans[span.inside].end_ns
            assert start <= span.start_ns <= span.end_ns <= end
        whole = sum(span.end_ns - span.start_ns for span in step.spans if span.inside < 0)
        assert whole == sum(step.parts.values())  # to the nanosecond: no time is counted twice


def test_steps_follow_each_other_without_a_gap() -> None:
    watch = Stopwatch()
    assert watch.done(0) is None  # nobody knows when it began
    first, second = done(watch, 1), done(watch, 2)
    # The clock of the wall is read once a step: the two readings may differ by what setting it moved it.
    assert abs(second.start_ns - first.end_ns) < 1e9


def test_a_phase_that_the_boundary_cuts_counts_in_both_steps() -> None:
    watch = Stopwatch()
    with watch.phase("data"), watch.phase("forward"):
        first = done(watch, 1)
    second = done(watch, 2)
    for step in (first, second):
        assert set(step.parts) == {"data", "forward"}
        assert sum(step.parts.values()) <= step.end_ns - step.start_ns


def test_a_phase_that_raises_is_measured_and_the_error_goes_on() -> None:
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError), watch.phase("forward"):
        _ = 1 / 0
    assert set(done(watch, 1).parts) == {"forward"}


def test_phases_of_other_threads_are_not_part_of_the_step() -> None:
    watch = Stopwatch()
    with watch.phase("forward"):
        other = threading.Thread(target=walk, args=(watch, [("data", [("communication", [])])]))
        other.start()
        other.join()
    assert set(done(watch, 1).parts) == {"forward"}


def test_a_step_with_very_many_phases_keeps_their_time_and_only_some_of_their_spans() -> None:
    watch = Stopwatch()
    for _ in range(SPANS_LIMIT):
        walk(watch, [("forward", [("communication", [])])])
    step = done(watch, 1)
    assert len(step.spans) == SPANS_LIMIT
    assert step.parts["forward"] > sum(each.end_ns - each.start_ns for each in step.spans if each.name == "forward") / 2
    assert sum(step.parts.values()) <= step.end_ns - step.start_ns


def test_communication_that_hides_in_the_backward_pass_is_measured_where_it_does_not_hide(
    jobs: Jobs, tmp_path: Path
) -> None:
    """The first rank waits for the second, which comes 0.2 s late: within the backward pass, in no phase of its own."""
    config = {"steps": 12, "checkpoints": {"folder": "saved"}, "telemetry": {"console": "off", "hardware_every_s": 0}}
    (tmp_path / "run.yaml").write_text(json.dumps(config))  # JSON is YAML
    codes, logs = jobs.run(HERE / "hidden_communication.py", "run.yaml", folder=tmp_path, world=2)
    assert codes == [0, 0], logs
    found = [
        {
            what: float(seconds)
            for what, seconds in re.findall(r"^muster_backward_communication_(\w+)\{.*?\} (\S+)$", log, re.M)
        }
        for log in logs
    ]
    for each in found:
        assert 0 <= each["exposed_seconds"] <= each["seconds"]
        assert 0 <= each["exposed_ratio"] <= 1
    assert found[0]["exposed_seconds"] > 0.1 > found[1]["exposed_seconds"]


@pytest.mark.parametrize(
    "told",
    [
        None,
        dict,
        lambda: {"iteration": 3, "backward_comm_time": -1, "backward_compute_comm_overlap_time": -1},
        lambda: 1 / 0,
    ],
)
def test_where_a_model_does_not_say_how_long_it_communicated_nothing_is_said(told: Any) -> None:
    overlap = Overlap(SimpleNamespace(_get_ddp_logging_data=told) if told else object())
    assert [overlap.sample() for _ in range(201)] == [None] * 201


def test_what_was_measured_is_said_once() -> None:
    told = {"iteration": 5, "backward_comm_time": 3e9, "backward_compute_comm_overlap_time": 1e9}
    overlap = Overlap(SimpleNamespace(_get_ddp_logging_data=lambda: told))
    assert [each for each in (overlap.sample() for _ in range(201)) if each] == [Communication(3.0, 2.0)]
