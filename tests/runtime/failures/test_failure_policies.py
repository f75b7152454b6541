"""What is decided about bad losses, restarts, and replicas that differ."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.control import Control
from runtime.exits import Exit
from runtime.failures.loss import Action, Course, Judgement, LossConfig, judge, resumed, wish
from runtime.failures.replicas import Odd, compare, digest, odd
from runtime.failures.restarts import NoProgressError, RestartConfig, Restarts, Start, decide
from runtime.place import Place


def run(config: LossConfig, losses: list[float], course: Course | None = None, first: int = 1) -> list[Judgement]:
    """What one rank decides for itself, step by step."""
    found, course = [], course or Course()
    for step, loss in enumerate(losses, first):
        found.append(judge(config, course, step, loss, wish(config, course, step, loss)[0]))
        course = found[-1].course
    return found


STEADY = [2.0 + 0.01 * (step % 7) for step in range(40)]


def test_a_loss_that_falls_slowly_is_never_held_up() -> None:
    losses = [3.0 * 0.99**step + 0.02 * (step % 5) for step in range(500)]
    assert {each.action for each in run(LossConfig(), losses)} == {Action.GO}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_skipped_then_rolled_back_then_stopped(bad: float) -> None:
    config = LossConfig(skips=2, roll_backs=1)
    found = run(config, [*STEADY, bad, bad, bad])
    assert [each.action for each in found[40:]] == [Action.SKIP, Action.SKIP, Action.ROLL_BACK]
    assert found[-1].before == 41  # not to a checkpoint from among the bad ones, which holds the same weights
    course = resumed(found[-1].course, 30)
    again = run(config, [2.0] * 13 + [bad, bad, bad], course, 31)
    # What was bad is left out when the data comes to it again, whatever its loss is now.
    assert [each.action for each in again[10:13]] == [Action.SKIP] * 3
    assert again[-1].action is Action.STOP


def test_a_spike_is_measured_against_the_losses_before_it_and_is_none_of_them() -> None:
    found = run(LossConfig(), [*STEADY, 9.0, 2.0])
    assert [each.action for each in found[40:]] == [Action.SKIP, Action.GO]
    assert "deviations above" in wish(LossConfig(), found[39].course, 41, 9.0)[1]
    assert 9.0 not in [loss for _, loss in found[-1].course.losses]
    assert run(LossConfig(on_spike="go"), [*STEADY, 9.0])[-1].action is Action.GO
    assert run(LossConfig(), [2.0, 9.0])[-1].action is Action.GO  # too little history to call it one


def test_a_checkpoint_is_suspected_where_good_data_is_bad_after_it_or_none_is_good() -> None:
    config = LossConfig(on_nan="roll_back")
    left = run(config, [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, math.nan])[-1]
    assert left.before == 7
    course = resumed(left.course, 4)
    # Steps 5 and 6 were good before.
    assert judge(config, course, 5, math.nan, Action.ROLL_BACK).before == 4
    # Step 8 is new: another bad batch, not far from the first, is no fault of the checkpoint.
    assert run(config, [2.0, 2.0, math.nan, math.nan], course, 5)[-1].before == 7
    # One bad step after a checkpoint says little, a second one without a good one in between more.
    first = judge(config, resumed(Course(), 100), 101, math.nan, Action.ROLL_BACK)
    assert first.before == 101
    known, second = run(config, [math.nan, math.nan], resumed(first.course, 100), 101)
    assert (known.action, second.before) == (Action.SKIP, 100)
    # Where the run began anew there is no checkpoint to suspect.
    assert [each.before for each in run(config, [math.nan, math.nan])] == [1, 1]


def test_roll_backs_are_forgotten_once_the_run_is_well_beyond_them() -> None:
    config = LossConfig(on_nan="roll_back", roll_backs=1, window=10)
    course = resumed(run(config, [2.0] * 6 + [math.nan])[-1].course, 4)
    soon = run(config, [2.0] * 10 + [math.nan], course, 5)
    assert soon[-1].action is Action.STOP
    late = run(config, [2.0] * 11 + [math.nan], course, 5)
    assert late[-1].action is Action.ROLL_BACK


ACTIONS = st.sampled_from([math.nan, 2.0])


@given(st.lists(st.lists(ACTIONS, min_size=3, max_size=3), max_size=80), st.integers(0, 3), st.integers(0, 3))
def test_all_ranks_decide_the_same_whoever_the_bad_batches_fall_to(
    steps: list[list[float]], skips: int, roll_backs: int
) -> None:
    config = LossConfig(skips=skips, roll_backs=roll_backs)
    ranks, step = [Course()] * 3, 0
    for losses in steps:
        step += 1
        worst = max(wish(config, own, step, loss)[0] for own, loss in zip(ranks, losses, strict=True))
        found = [judge(config, own, step, loss, worst) for own, loss in zip(ranks, losses, strict=True)]
        assert len({(each.action, each.before, replace(each.course, losses=())) for each in found}) == 1
        if found[0].before is not None:
            assert found[0].before <= step
            step = max(0, found[0].before - 2)
            found = [replace(each, course=resumed(each.course, step)) for each in found]
        ranks = [each.course for each in found]


@given(st.lists(st.floats(), max_size=60))
def test_no_course_of_losses_raises_and_none_goes_on_for_ever(losses: list[float]) -> None:
    run(LossConfig(history=2, window=5), losses)
    bad = run(LossConfig(skips=1, roll_backs=2), [math.nan] * 20)
    assert Action.STOP in [each.action for each in bad]


def start(step: int | None, exit: int | None = None) -> Start:
    return Start(at=0.0, step=step, attempt="x", exit=exit)


def test_starts_without_progress_wait_longer_each_time_and_then_end() -> None:
    config = RestartConfig(no_progress=3, wait_s=10, longest_wait_s=15)
    assert decide(config, [], 0) == 0
    assert decide(config, [start(0)], 5) == 0
    assert decide(config, [start(0), start(5, Exit.RESUMABLE_FAILURE)], 5) == 10
    assert decide(config, [start(5), start(5)], 5) == 15
    with pytest.raises(NoProgressError, match="3 starts at step 5 failed"):
        decide(config, [start(5), start(5), start(5)], 5)
    # Going back to an older checkpoint is no progress either.
    with pytest.raises(NoProgressError):
        decide(config, [start(5), start(5), start(4)], 3)
    assert decide(RestartConfig(no_progress=100, wait_s=1), [start(5)] * 99, 5) == 300  # and no number overflows


def test_starts_that_failed_before_they_had_resumed_are_no_progress_either() -> None:
    config = RestartConfig(no_progress=3, wait_s=10)
    assert decide(config, [start(5), start(None)], None) == 10
    assert decide(config, [start(None), start(5)], None) == 0
    assert decide(config, [start(5), start(None)], 5) == 20
    assert decide(config, [start(4), start(None)], 5) == 10
    with pytest.raises(NoProgressError, match="3 starts failed before they had resumed"):
        decide(config, [start(None)] * 3, None)


def test_stops_are_no_failures() -> None:
    history = [start(5, Exit.RESUMABLE_STOP)] * 50
    assert decide(RestartConfig(), history, 5) == 0


def restarts(folder: Path, events: list[Any], attempt: str, stall_s: float = 60.0) -> Restarts:
    place = Place(attempt=attempt)
    return Restarts(
        RestartConfig(wait_s=0),
        folder / "run" / "restarts.json",
        place,
        Control(place),
        lambda event, /, **_: events.append(event),
        stall_s,
    )


def began(folder: Path, events: list[Any], attempt: str, step: int) -> Restarts:
    found = restarts(folder, events, attempt)
    found.begin()
    found.resumed(step)
    return found


def test_the_history_outlives_processes_and_a_damaged_one_stops_nobody(tmp_path: Path) -> None:
    events: list[Any] = []
    (tmp_path / "run").mkdir()
    for attempt in range(3):
        began(tmp_path, events, str(attempt), 7)
    with pytest.raises(NoProgressError):
        began(tmp_path, events, "3", 7)
    began(tmp_path, events, "4", 8).ended(Exit.RESUMABLE_STOP)
    restarts(tmp_path, events, "4").ended(Exit.FAILED)  # it has not begun: what is noted is another's
    file = tmp_path / "run" / "restarts.json"
    assert json.loads(file.read_text())[-1] | {"at": 0} == {"at": 0, "step": 8, "attempt": "4", "exit": 85}
    assert not events
    for damage in ("", "{}", '[{"step": "many"}]', "[" * 100_000, '{"a": ' + "1" * (2 << 20) + "}"):
        file.write_text(damage)
        began(tmp_path, events, "5", 8)
        assert events.pop() == "restart.history_unreadable"


def test_a_history_that_hangs_holds_no_start_and_no_end_up(tmp_path: Path) -> None:
    """A pipe that nobody writes to is what storage that answers nothing is to whoever opens it."""
    events: list[Any] = []
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "restarts.json")
    made = restarts(tmp_path, events, "1", stall_s=0.2)
    made.begin(7)
    made.ended(Exit.RESUMABLE_STOP, limit_s=0.1)
    assert set(events) == {"restart.history_unreadable"}


def test_a_replica_that_differs_is_named_where_there_is_a_majority() -> None:
    assert odd("aaaa", "1111") is None
    assert odd("aaaa", "1121") == Odd((2,), certain=True)
    assert odd("aa", "12") == Odd((0, 1), certain=False)
    assert odd("aabb", "1122") is None  # shards differ; their replicas do not
    assert odd("abab", "1213") == Odd((1, 3), certain=False)


@given(st.lists(st.sampled_from("123"), min_size=1, max_size=9))
def test_whoever_is_in_a_majority_is_never_accused(digests: list[str]) -> None:
    found = odd(["k"] * len(digests), digests)
    for rank, each in enumerate(digests):
        if digests.count(each) * 2 > len(digests):
            assert found is None or rank not in found.ranks


def test_one_flipped_bit_gives_another_digest() -> None:
    import torch

    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int8):
        tensor = torch.arange(100).to(dtype)
        before = digest([tensor, torch.ones(3)])
        assert digest([tensor.clone(), torch.ones(3)]) == before
        size = tensor.element_size()
        words = tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
        for position, bit in ((0, 0), (99, 8 * size - 1), (50, 3)):
            flip = torch.tensor(-(1 << bit) if bit == 8 * size - 1 else 1 << bit).to(words.dtype)
            words[position] ^= flip
            assert digest([tensor, torch.ones(3)]) != before
            words[position] ^= flip
    swapped = torch.tensor([1.0, 2.0])
    assert digest([swapped]) != digest([swapped.flip(0)])


def test_ranks_that_differ_are_told_with_their_nodes() -> None:
    class Told(Control):
        def gather(self, value: bytes, _limit: int = 1 << 20) -> list[bytes]:
            other = json.loads(value)
            alone = json.dumps(["of another kind", "abc", "gpu-2"]).encode()
            return [value, json.dumps([other[0], "other", "gpu-1"]).encode(), value, alone]

    events: list[tuple[str, dict[str, Any]]] = []
    place = Place(rank=0, world=1, node="gpu-0")
    found = compare(Told(place), "dp", "abc", 12, "parameters", lambda e, /, **fields: events.append((e, fields)))
    assert found == Odd((1,), certain=True)
    told = dict(events)
    assert told["replica.differs"]["nodes"] == ["gpu-1"]
    assert told["replica.not_compared"]["ranks"] == [3]  # nothing is known of it, and that is said
