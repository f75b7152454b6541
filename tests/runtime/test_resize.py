"""A training goes on with fewer ranks, and with more again, where it was, and with the samples that come next."""

import sys
from itertools import chain, zip_longest

import pytest

from tests.runtime.test_kill import SCRIPT, notes, started

STEPS = 12


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """All runs, plain and sharded."""
    root = tmp_path_factory.mktemp("resize")
    with started(root / "log", sys.executable, str(SCRIPT), str(root), str(STEPS), "--resized") as agent:
        agent.wait(timeout=200)
        assert agent.returncode == 0, (root / "log").read_text()[-4000:]
    return root


def batches(run) -> dict[int, list[int]]:
    """The samples of each step, in the global order, whatever ranks took them."""
    taken = [{each["step"]: each["samples"] for each in notes(run, f"steps.{rank}")} for rank in range(4)]
    return {
        step: [each for each in chain(*zip_longest(*(of[step] for of in taken if step in of))) if each is not None]
        for step in taken[0]
    }


@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_the_order_of_samples_is_the_same_at_four_two_and_four_ranks(root, kind):
    found = batches(root / f"{kind}-4-2-4")
    assert len(found) == STEPS
    assert found == batches(root / f"{kind}-4")


@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_each_start_has_the_very_state_that_the_one_before_ended_with(root, kind):
    run = root / f"{kind}-4-2-4"
    ended = notes(run, "ended")
    resumed = notes(run, "resumed")
    assert [each["world"] for each in resumed] == [4] * 2 + [2] * 4
    assert {each["digest"] for each in resumed[:2]} == {each["digest"] for each in ended[:4]}
    assert {each["digest"] for each in resumed[2:]} == {each["digest"] for each in ended[4:6]}
    assert {each["step"] for each in resumed[:2]} == {STEPS // 3}
    assert {each["step"] for each in resumed[2:]} == {2 * STEPS // 3}


@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_a_rank_without_a_random_state_of_its_own_gets_a_derived_one(root, kind):
    resumed = notes(root / f"{kind}-4-2-4", "resumed")
    assert [each["rng"] for each in resumed[:2]] == ["restored"] * 2
    assert {each["rank"]: each["rng"] for each in resumed[2:]} == {
        0: "restored",
        1: "restored",
        2: "derived",
        3: "derived",
    }
