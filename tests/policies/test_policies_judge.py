"""From measurements to verdicts: the kinds of mistake by which other systems passed what they must not."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_measurements import EXAMPLES, gpus
from sample_nodes import CATALOGUE, HARDWARE, NOW, PINS, examined, expected, measured, node_for, verdict_of

from policies.judge import FRESH, judge, judge_cluster, judge_node
from policies.measurement import Examination
from policies.reading import PolicyError
from policies.verdict import Severity, State, Verdict
from policies.waivers import NO_WAIVERS, Waiver, Waivers

ECC = CATALOGUE["gpu.ecc.uncorrected"]
LOAD = CATALOGUE["host.load"]
NODE = HARDWARE.node("gpu-0")
RIGHT = measured("gpu.ecc_uncorrected", gpus(0))
WRONG = measured("gpu.ecc_uncorrected", gpus(0, gpu_3=2))


def judged(run: Examination | None, waivers: Waivers = NO_WAIVERS, now: datetime = NOW, control: Any = ECC) -> Verdict:
    return judge(control, NODE, expected(NODE), run, waivers, now)


def test_a_gpu_that_cannot_answer_is_never_a_pass() -> None:
    unmeasurable = {"measure": "gpu.ecc_uncorrected", "outcome": "unmeasurable", "reason": "ECC is off"}
    cut_short = {"measure": "gpu.ecc_uncorrected", "outcome": "error", "reason": "NVML: GPU is lost"}
    for told in (unmeasurable, cut_short):
        verdict = judged(examined(NODE.name, told))  # type: ignore[arg-type]
        assert verdict.state is State.ERROR
        assert verdict.reason == told["reason"]
    for value in (None, [], {}, [0] * 7, [0] * 9, gpus(None), "[N/A]"):
        assert verdict_of(ECC, value).state in (State.FAIL, State.ERROR)


def test_no_measurement_is_not_evaluated() -> None:
    for run in (None, examined(NODE.name), examined(NODE.name, measured("gpu.count", 8))):
        verdict = judged(run)
        assert verdict.state is State.NOT_EVALUATED
        assert verdict.reason
        assert verdict.repair


def test_a_fact_told_twice_is_not_known() -> None:
    verdict = judged(examined(NODE.name, WRONG, RIGHT))
    assert verdict.state is State.NOT_EVALUATED
    assert "2 times" in verdict.reason


def test_a_node_out_of_reach_is_unreachable_whatever_else_it_says() -> None:
    verdict = judged(examined(NODE.name, RIGHT, unreachable="ssh: connect to host gpu-0: No route to host"))
    assert verdict.state is State.UNREACHABLE
    assert "No route to host" in verdict.reason


def test_another_nodes_measurements_are_no_pass() -> None:
    assert judged(examined("gpu-1", RIGHT)).state is State.ERROR


def test_a_pass_in_an_examination_that_was_cut_off_does_not_count_and_a_failure_does() -> None:
    assert judged(examined(NODE.name, RIGHT, complete=False, finished=None)).state is State.NOT_EVALUATED
    assert judged(examined(NODE.name, WRONG, complete=False, finished=None)).state is State.FAIL


def test_an_old_examination_and_one_from_the_future_do_not_count() -> None:
    run = examined(NODE.name, RIGHT)
    assert judged(run, now=NOW + FRESH - timedelta(seconds=10)).state is State.PASS
    assert judged(run, now=NOW + FRESH).state is State.NOT_EVALUATED
    assert judged(run, now=NOW - timedelta(minutes=1)).state is State.NOT_EVALUATED


def test_a_simulated_measurement_marks_its_verdict() -> None:
    assert judged(examined(NODE.name, RIGHT.model_copy(update={"simulated": True}))).simulated
    assert not judged(examined(NODE.name, RIGHT)).simulated


def test_the_same_failure_seen_again_fails_again() -> None:
    run = examined(NODE.name, WRONG)
    assert judged(run) == judged(run)
    assert judged(run).state is State.FAIL


def test_a_failure_says_what_was_found_expected_and_to_be_done() -> None:
    verdict = judged(examined(NODE.name, WRONG))
    assert verdict.found == {"gpu-3": 2}
    assert verdict.expected == "each of 8: 0"
    assert verdict.reason == "gpu-3: 2, expected 0"
    assert verdict.repair == ECC.repair.do


def test_what_a_control_is_not_about_is_not_applicable_and_says_why() -> None:
    node = HARDWARE.node("storage-0")
    verdict = judge(ECC, node, expected(node), examined(node.name, WRONG), NO_WAIVERS, NOW)
    assert verdict.state is State.NOT_APPLICABLE
    assert "compute" in verdict.reason


def test_a_spec_that_lacks_what_is_compared_with_is_an_error_not_a_pass() -> None:
    lacking = {name: value for name, value in expected(NODE).items() if name != "time.limit_ms"}
    control = CATALOGUE["time.offset"]
    run = examined(NODE.name, measured(control.measure, 0.0))
    assert judge(control, NODE, lacking, run, NO_WAIVERS, NOW).state is State.ERROR


def test_a_failed_warning_does_not_keep_a_node_out_but_an_unknown_one_does() -> None:
    assert LOAD.severity is Severity.WARNING
    assert not verdict_of(LOAD, 40.0, NODE).keeps_out
    assert judged(examined(NODE.name), control=LOAD).keeps_out
    assert judged(examined(NODE.name, WRONG)).keeps_out


# Waivers


def waiver(**changed: Any) -> Waivers:
    told = {
        "id": "ecc-gpu-0",
        "control": ECC.id,
        "nodes": frozenset({"gpu-0"}),
        "reason": "exchanged on Monday",
        "approved_by": "ops",
        "expires": NOW + timedelta(hours=1),
    }
    return Waivers((Waiver(**(told | changed)),))


def test_a_waiver_excuses_a_failure_and_keeps_what_was_found() -> None:
    verdict = judged(examined(NODE.name, WRONG), waiver())
    assert verdict.state is State.WAIVED
    assert verdict.waiver is not None
    assert verdict.waiver.real is State.FAIL
    assert verdict.found == {"gpu-3": 2}
    assert verdict.reason


def test_a_waiver_never_excuses_what_is_unknown() -> None:
    everything = waiver(nodes=frozenset())
    told = {"measure": ECC.measure, "outcome": "error", "reason": "no answer"}
    for run in (
        None,
        examined(NODE.name),
        examined(NODE.name, RIGHT, unreachable="no route"),
        examined(NODE.name, told),  # type: ignore[arg-type]
        examined(NODE.name, measured(ECC.measure, gpus(0, gpu_3=None))),
        examined(NODE.name, RIGHT, complete=False),
    ):
        assert judged(run, everything).state in (State.NOT_EVALUATED, State.UNREACHABLE, State.ERROR)


def test_a_waiver_turns_no_pass_into_something_else() -> None:
    assert judged(examined(NODE.name, RIGHT), waiver()).state is State.PASS


def test_an_expired_waiver_excuses_nothing_and_says_so() -> None:
    for expires in (NOW, NOW - timedelta(seconds=1)):
        verdict = judged(examined(NODE.name, WRONG), waiver(expires=expires))
        assert verdict.state is State.FAIL
        assert verdict.waiver is None
        assert "ecc-gpu-0 expired at" in verdict.reason


def test_a_waiver_expires_at_an_instant_wherever_it_was_written() -> None:
    east = timezone(timedelta(hours=9))
    soon = waiver(expires=(NOW + timedelta(minutes=1)).astimezone(east))
    past = waiver(expires=(NOW - timedelta(minutes=1)).astimezone(east))
    assert judged(examined(NODE.name, WRONG), soon).state is State.WAIVED
    assert judged(examined(NODE.name, WRONG), past).state is State.FAIL


def test_a_waiver_covers_its_own_control_and_node_only() -> None:
    for other in (waiver(control="gpu.count"), waiver(nodes=frozenset({"gpu-1"}))):
        assert judged(examined(NODE.name, WRONG), other).state is State.FAIL


def test_of_two_waivers_the_one_that_lasts_counts() -> None:
    both = Waivers((*waiver(expires=NOW - timedelta(days=1)).waivers, *waiver().waivers))
    assert judged(examined(NODE.name, WRONG), both).state is State.WAIVED


# Nodes and clusters


def healthy(name: str) -> Examination:
    """A node on which every control that applies passes."""
    node, values = HARDWARE.node(name), {}
    spec = expected(node)
    for control in CATALOGUE:
        if judge(control, node, spec, None, NO_WAIVERS, NOW).state is not State.NOT_APPLICABLE:
            value, before = EXAMPLES[control.id].passing(spec), values.get(control.measure)
            if control.measure == "network.interfaces" and before:  # one control is about addresses, one about speeds
                value = {name: before[name] | value[name] for name in before}
            values[control.measure] = value
    values["time.source"] = (spec["time.sources"] or ["local"])[0]  # type: ignore[index]
    return examined(name, *(measured(measure, value) for measure, value in values.items()))


ALL = tuple(healthy(node.name) for node in HARDWARE.nodes)


def test_a_healthy_cluster_passes_everywhere() -> None:
    told = judge_cluster(CATALOGUE, HARDWARE, PINS, ALL, NO_WAIVERS, NOW)
    bad = [each for verdicts in told.values() for each in verdicts if not each.state.counts]
    assert bad == []


def test_every_control_has_a_verdict_on_every_node_that_should_be_there() -> None:
    told = judge_cluster(CATALOGUE, HARDWARE, PINS, (), NO_WAIVERS, NOW)
    assert told.keys() == {node.name for node in HARDWARE.nodes}
    for verdicts in told.values():
        assert [each.control for each in verdicts] == [control.id for control in CATALOGUE]
        assert {each.state for each in verdicts} == {State.NOT_EVALUATED, State.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("examinations", "unjudged"),
    [(ALL[:-1], {"gpu-1"}), ((*ALL, ALL[0]), {"control-0"}), ((*ALL, examined("gpu-9")), set())],
    ids=["left out", "examined twice", "not in the plan"],
)
def test_a_node_that_was_not_examined_once_is_judged_by_nothing_and_a_stranger_not_at_all(
    examinations: tuple[Examination, ...], unjudged: set[str]
) -> None:
    told = judge_cluster(CATALOGUE, HARDWARE, PINS, examinations, NO_WAIVERS, NOW)
    assert told.keys() == {node.name for node in HARDWARE.nodes}
    silent = {name for name, each in told.items() if any(verdict.state is State.NOT_EVALUATED for verdict in each)}
    assert silent == unjudged
    assert not any(verdict.state is State.PASS for name in unjudged for verdict in told[name])


def test_zero_nodes_is_an_error() -> None:
    with pytest.raises(PolicyError):
        judge_cluster(CATALOGUE, HARDWARE, PINS, ALL, NO_WAIVERS, NOW, nodes=())
    with pytest.raises(LookupError):
        judge_cluster(CATALOGUE, HARDWARE, PINS, ALL, NO_WAIVERS, NOW, nodes=("gpu-9",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner, max_size=9),
    max_leaves=15,
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(sorted(CATALOGUE.measures)), JSON, max_size=6), st.booleans())
def test_nothing_that_a_node_sends_makes_judging_fail(values: dict[str, Any], complete: bool) -> None:
    run = examined(NODE.name, *(measured(*each) for each in values.items()), complete=complete)
    for verdict in judge_node(CATALOGUE, NODE, expected(NODE), run, NO_WAIVERS, NOW):
        if verdict.control in CATALOGUE and CATALOGUE[verdict.control].measure not in values:
            assert verdict.state in (State.NOT_EVALUATED, State.NOT_APPLICABLE)
        if not complete:
            assert verdict.state is not State.PASS
        verdict.model_dump_json()


def test_times_are_compared_as_instants() -> None:
    run = examined(NODE.name, RIGHT)
    assert judged(run, now=NOW.astimezone(timezone(timedelta(hours=-8)))).state is State.PASS
    assert NOW.tzinfo is UTC


def test_every_control_can_be_asked_of_some_node() -> None:
    assert all(node_for(control) for control in CATALOGUE)
