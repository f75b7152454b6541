"""From Ansible's events to what a run did: nothing unknown becomes a success."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.converge.apart import LINE
from stacks.converge.result import NOTES, TEXT, Converged, Note, Recorder


def event(kind: str, host: str = "gpu-0", task: str = "Write", **res: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": host, "task": task, "role": "base", "res": res}}


def stats(**counts: dict[str, int]) -> dict[str, Any]:
    empty = {key: {} for key in ("ok", "changed", "failures", "dark", "skipped", "ignored", "rescued")}
    return {"event": "playbook_on_stats", "event_data": {**empty, **counts}}


def recorded(*events: dict[str, Any]) -> Recorder:
    recorder = Recorder()
    for each in events:
        recorder.progress(each)
    return recorder


def test_a_run_without_statistics_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a summary"):
        recorded(event("runner_on_ok")).converged(["gpu-0"], False, 1)


def test_no_hosts_is_an_error_not_a_success() -> None:
    with pytest.raises(ValueError, match="no host"):
        recorded(stats()).converged(["gpu-0"], False, 1)
    with pytest.raises(ValueError, match="no host"):
        recorded(stats(ok={"gpu-0": 1})).converged([], False, 1)


def test_a_host_that_was_never_reached_is_named() -> None:
    with pytest.raises(ValueError, match="never reached: gpu-1"):
        recorded(stats(ok={"gpu-0": 3})).converged(["gpu-0", "gpu-1"], False, 1)


def test_unreachable_is_not_failed() -> None:
    done = recorded(event("runner_on_unreachable", msg="no route"), stats(dark={"gpu-0": 1})).converged(
        ["gpu-0"], False, 1
    )
    assert not done.holds
    assert done.hosts[0].unreachable == 1
    assert done.hosts[0].failed == 0
    assert [note.text for note in done.unreachable] == ["no route"]
    assert done.failures == ()


def test_a_failed_task_says_where_and_what() -> None:
    recorder = recorded()
    line = recorder.progress(event("runner_on_failed", msg="disk full"))
    assert line == ("gpu-0 failed at base : Write: disk full", True)
    done_stats = stats(ok={"gpu-0": 4}, failures={"gpu-0": 1})
    recorder.progress(done_stats)
    assert not recorder.converged(["gpu-0"], False, 1).holds


def test_a_play_is_worth_a_line_and_a_task_only_shows() -> None:
    recorder = recorded()
    assert recorder.progress({"event": "playbook_on_play_start", "event_data": {"name": "Every node"}}) == (
        "Every node",
        True,
    )
    assert recorder.progress(event("playbook_on_task_start")) == ("base : Write", False)


def test_a_failed_loop_says_what_its_item_said() -> None:
    recorder = recorded(event("runner_item_on_failed", msg="no space left on device"))
    line = recorder.progress(event("runner_on_failed", msg="All items completed"))
    assert line == ("gpu-0 failed at base : Write: no space left on device", True)
    assert recorder.progress(event("runner_on_failed", host="gpu-1", msg="own")) == (
        "gpu-1 failed at base : Write: own",
        True,
    )


def test_an_ignored_failure_is_none() -> None:
    ignored = event("runner_on_failed", msg="no")
    ignored["event_data"]["ignore_errors"] = True
    assert recorded(ignored, stats(ok={"gpu-0": 1}, ignored={"gpu-0": 1})).converged(["gpu-0"], False, 1).holds


def skip(task: str, **res: Any) -> dict[str, Any]:
    """A line of `callbacks/muster_skipped.py`."""
    return {"host": "gpu-0", "task": task, "role": "base", "res": res}


def test_what_check_mode_cannot_tell_is_unknown_and_what_a_condition_excludes_is_not() -> None:
    recorder = recorded(stats(ok={"gpu-0": 1}, skipped={"gpu-0": 3}))
    for each in (
        skip("command", msg="Command would have run if not in check mode"),
        skip("item", msg="Command would have run if not in check mode"),
        skip("item", msg="Command would have run if not in check mode"),
        skip("module", msg="remote module (x) does not support check mode"),
        skip("condition", skip_reason="Conditional result was False", false_condition="no"),
        skip("constant", skip_reason="Conditional result was False", false_condition=False),
        skip("nothing", skipped_reason="No items in the list"),
        skip("hidden"),
    ):
        recorder.skipped(each)
    assert [note.task for note in recorder.converged(["gpu-0"], True, 1).unknown] == ["command", "item", "module"]


def test_a_change_carries_its_difference() -> None:
    difference = {"before": "a\n", "after": "b\n", "after_header": "/etc/x"}
    done = recorded(event("runner_on_ok", changed=True, diff=[difference]), stats(ok={"gpu-0": 1}))
    assert done.converged(["gpu-0"], True, 1).changes[0].text == "/etc/x\n- a\n+ b"


def test_a_host_where_no_task_ran_holds_nothing() -> None:
    assert not recorded(stats(skipped={"gpu-0": 3})).converged(["gpu-0"], False, 1).holds


@given(st.text(max_size=50) | st.none() | st.integers(), st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
def test_no_message_of_a_node_breaks_the_record(said: Any, more: dict[str, str]) -> None:
    failed = event("runner_on_failed")
    failed["event_data"]["res"] = {**more, "msg": said}
    recorded(
        failed,
        event("runner_on_ok", changed=True, diff=said, results=[said]),
    )


def test_floods_are_bounded() -> None:
    recorder = recorded(*(event("runner_on_ok", changed=True, msg="x" * 10 * TEXT) for _ in range(2 * NOTES)))
    assert recorder.changed_tasks == 2 * NOTES
    assert len(recorder.changes) == NOTES
    assert max(len(note.text) for note in recorder.changes) <= TEXT


def test_the_largest_result_fits_in_a_line() -> None:
    notes = (Note(host="☃" * 200, task="☃" * 200, role="☃" * 100, text="☃" * TEXT),) * NOTES
    largest = Converged(check=True, hosts=(), changes=notes, failures=notes, unreachable=notes, unknown=notes)
    assert len(json.dumps({"converged": largest.model_dump(mode="json")})) < LINE
