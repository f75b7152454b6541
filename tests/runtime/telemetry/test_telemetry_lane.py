"""A receiver may be slow, hang, fail or be missing: it costs its own items, counted, and whoever puts never waits."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_receivers import until

from runtime.telemetry.lane import Lane

Failing = Callable[[list[int]], None]


class Kept:
    """Keeps what it gets; `before` may raise or hang."""

    def __init__(self, before: Failing = lambda _: None) -> None:
        self.items: list[int] = []
        self.closed = False
        self._before = before

    def take(self, batch: list[int]) -> None:
        self._before(batch)
        self.items += batch

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Holds a receiver back until the test is over."""
    free = threading.Event()
    yield free
    free.set()


def test_what_is_put_arrives_in_order_and_the_receiver_is_closed() -> None:
    kept = Kept()
    lane: Lane[int] = Lane("x", lambda: kept, period_s=0.01)
    for each in range(3000):
        lane.put(each)
    assert lane.flush(30)
    assert kept.items == list(range(3000))
    lane.end()
    assert lane.join(30)
    assert kept.closed
    assert lane.dropped == 0


def test_a_receiver_that_hangs_costs_what_does_not_fit_and_the_end_does_not_wait_for_it(
    stuck: threading.Event,
) -> None:
    entered = threading.Event()

    def hang(_: list[int]) -> None:
        entered.set()
        stuck.wait()

    lane: Lane[int] = Lane("x", lambda: Kept(hang), limit=10, period_s=0.01)
    lane.put(-1)
    assert entered.wait(30)
    for each in range(25):
        lane.put(each)  # returns, or the test's time limit ends it
    assert lane.dropped == 15
    assert not lane.flush(0.05)
    lane.end()
    assert not lane.join(0.05)
    assert lane.dropped == 26  # the one that it hangs on, the 10 that waited, the 15 before


def test_a_receiver_that_cannot_be_opened_is_tried_again_and_what_was_put_is_delivered_then() -> None:
    attempts: list[int] = []
    told: list[str | None] = []
    kept = Kept()

    def make() -> Kept:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("not mounted yet")
        return kept

    lane: Lane[int] = Lane(
        "x", make, period_s=0.01, tries=5, changed=lambda name, why: told.append(why and f"{name}: {why}")
    )
    lane.put(1)
    assert lane.flush(30)
    assert kept.items == [1]
    assert told == ["x: not mounted yet", None]  # once when it was lost, once when it was back
    assert lane.dropped == 0


def test_a_batch_that_is_refused_is_offered_so_often_and_then_counted() -> None:
    offered: list[list[int]] = []

    def refuse(batch: list[int]) -> None:
        offered.append(list(batch))
        if 1 in batch:
            raise ValueError("bad")

    kept = Kept(refuse)
    lane: Lane[int] = Lane("x", lambda: kept, period_s=0.01, tries=3)
    lane.put(1)
    assert lane.flush(30)
    assert offered == [[1]] * 3
    assert lane.dropped == 1
    lane.put(2)
    assert lane.flush(30)
    assert kept.items == [2]


def test_the_end_delivers_what_waits_once_and_does_not_go_on_trying() -> None:
    def refuse(_: list[int]) -> None:
        raise ConnectionError("down")

    lane: Lane[int] = Lane("x", lambda: Kept(refuse), period_s=0.01, tries=1000)
    lane.put(1)
    until(lambda: lane._failures > 0)
    for each in range(100):
        lane.put(each)
    lane.end()
    assert lane.join(30)
    assert lane.dropped == 101
    lane.put(5)
    assert lane.dropped == 102


def test_whoever_hears_of_a_lost_receiver_may_fail_too() -> None:
    def changed(_name: str, _why: Any) -> None:
        raise RuntimeError("nobody listens")

    def refuse(_: list[int]) -> None:
        raise ConnectionError("down")

    lane: Lane[int] = Lane("x", lambda: Kept(refuse), period_s=0.01, changed=changed)
    lane.put(1)
    until(lambda: lane.dropped == 1)
    lane.put(2)
    until(lambda: lane.dropped == 2)
