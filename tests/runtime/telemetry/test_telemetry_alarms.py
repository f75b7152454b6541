"""An alarm rings when a signal leaves its own history, and only then; the same values give the same alarms."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.place import Place
from runtime.telemetry.alarms import Alarm, Guard, History, Signal, seen
from runtime.telemetry.config import Alarms, Worth
from runtime.telemetry.digest import Digest
from runtime.telemetry.metrics import Metrics
from runtime.telemetry.record import Step

CONFIG = Alarms(window=100, least=30, persist=5)
SIGNAL = Signal("step_time", "s", 0.001)


def follow(values: list[float], config: Alarms = CONFIG) -> list[tuple[int, Alarm]]:
    """Each alarm with the index of the value that brought it."""
    history, told = History(), []
    for index, value in enumerate(values):
        history, alarm = seen(history, value, SIGNAL, config)
        if alarm is not None:
            told.append((index, alarm))
    return told


def noise(count: int, middle: float = 1.0, spread: float = 0.02, seed: int = 0) -> list[float]:
    drawn = random.Random(seed)  # noqa: S311
    return [drawn.gauss(middle, spread) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_a_steady_run_with_lone_spikes_rings_no_alarm(seed: int) -> None:
    values = noise(2000, seed=seed)
    for index in range(40, 2000, 37):
        values[index] = 30.0  # a checkpoint, a garbage collection: once in a while
    assert follow(values) == []


def test_a_shift_rings_once_after_it_persisted_and_ends_when_it_is_over() -> None:
    values = noise(100) + noise(20, middle=1.5, seed=1) + noise(50, seed=2)
    (begun, begin), (ended, end) = follow(values)
    assert (begun, ended) == (100 + CONFIG.persist - 1, 120 + CONFIG.persist - 1)
    assert (begin.rings, end.rings) == (True, False)
    assert begin.usual == pytest.approx(1, abs=0.02)
    assert begin.value == pytest.approx(1.5, abs=0.05)


def test_a_level_that_stays_becomes_the_history() -> None:
    values = noise(100) + noise(300, middle=2.0, seed=1) + noise(20, middle=3.0, seed=2)
    told = follow(values)
    assert [(alarm.rings) for _, alarm in told] == [True, False, True]
    assert told[1][0] == 100 + CONFIG.window - 1
    assert told[2][1].usual == pytest.approx(2, abs=0.05)


def test_outliers_do_not_hide_a_fault() -> None:
    """Two of five values at the start were wild, as in a warm-up: median and MAD do not care."""
    values = [50.0 if index % 5 in (0, 1) else each for index, each in enumerate(noise(30))]
    values += noise(60, seed=3) + noise(10, middle=1.6, seed=1)
    assert [alarm.rings for _, alarm in follow(values)] == [True]


def test_a_signal_that_never_moves_has_room() -> None:
    assert follow([0.0] * 100 + [0.0009] * 100) == []
    assert follow([1.0] * 100 + [1.09] * 100) == []
    assert [alarm.rings for _, alarm in follow([1.0] * 100 + [1.2] * 20)] == [True]


@given(st.lists(st.floats(allow_nan=True), max_size=150))
def test_any_values_give_alarms_that_begin_and_end_in_turn(values: list[float]) -> None:
    told = [alarm.rings for _, alarm in follow(values, Alarms(window=10, least=10, persist=2))]
    assert told == follow_again(told)


def follow_again(told: list[bool]) -> list[bool]:
    """A level that is taken over may be told without having rung, when `persist` is as long as the window."""
    rings, kept = False, []
    for each in told:
        assert each != rings
        rings = each
        kept.append(each)
    return kept


def test_a_step_is_judged_by_its_shares_and_a_checkpoint_is_no_slow_step() -> None:
    def step(number: int, data_s: float = 0.1, communication_s: float = 0.2, checkpoint_s: float = 0.0) -> Step:
        parts = {"data": data_s, "forward": 0.7, "communication": communication_s, "checkpoint": checkpoint_s}
        end = int(sum(parts.values()) * 1e9)
        return Step(number, 0, end, {name: int(each * 1e9) for name, each in parts.items()})

    guard = Guard(CONFIG)
    steps = [step(number, checkpoint_s=60.0 * (number % 20 == 0)) for number in range(100)]
    assert [guard.see(each) for each in steps] == [[]] * 100
    assert [guard.see(step(number, checkpoint_s=60.0)) for number in range(10)] == [[]] * 10
    told = [alarm.signal for number in range(10) for alarm in guard.see(step(number, communication_s=1.0))]
    assert sorted(told) == ["communication", "step_time"]
    assert guard.rings


def test_a_step_out_of_its_history_is_handed_on_as_such_and_told_and_counted() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    handed: list[bool] = []
    metrics = Metrics(Place(), "run", Worth())
    digest = Digest(
        metrics,
        CONFIG,
        [lambda _, strange: handed.append(strange)],
        lambda event, /, **fields: told.append((event, fields)),
    )
    digest.take([Step(number, 0, 10**9, {"data": 10**8}) for number in range(50)])
    assert not any(handed)
    digest.take([Step(number, 0, 2 * 10**9, {"data": 12 * 10**8}) for number in range(50, 60)])
    assert handed[50:] == [True] * 10
    assert [name for name, _ in told] == ["alarm.step_time", "alarm.data_wait"]
    assert all(fields["level"] == "warning" and fields["step"] == 54 for _, fields in told)
    shown = {each.labels["signal"]: each.value for family in metrics.registry.collect() for each in family.samples
             if each.name == "muster_alarm"}  # fmt: skip
    assert shown == {"step_time": 1, "data_wait": 1}
