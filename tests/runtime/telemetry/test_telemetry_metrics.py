"""Metrics say what happened, by labels of which there are few; a Pushgateway has what a rank pushed."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from real_receivers import Server

from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
from runtime.telemetry.config import Worth
from runtime.telemetry.hardware import Reading
from runtime.telemetry.metrics import OTHER, Bounded, Metrics, mfu
from runtime.telemetry.overlap import Communication
from runtime.telemetry.record import Event, Step
from runtime.telemetry.redact import Redactor


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Everything that a scrape shows: name, labels but for run, rank and node, value."""
    text = generate_latest(metrics.registry).decode()
    return {
        (each.name, frozenset((k, v) for k, v in each.labels.items() if k not in ("run", "rank", "node"))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if not each.name.endswith("_created")
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def step(number: int = 1, seconds: float = 2.0, **values: Any) -> Step:
    parts = {"data": int(0.5e9), "forward": int(1e9)}
    return Step(number, 0, int(seconds * 1e9), parts, **values)


def test_a_step_becomes_its_parts_rates_and_mfu(place: Place) -> None:
    metrics = Metrics(place, "run", Worth(flops_per_token=6e9, peak_flops=1e12))
    metrics.step(step(samples=4, tokens=100, loss=2.5, grad_norm=0.5))
    assert value(metrics, "muster_step_last_seconds") == 2
    assert value(metrics, "muster_step_part_last_seconds", part="data") == 0.5
    assert value(metrics, "muster_step_part_last_seconds", part="rest") == 0.5
    assert value(metrics, "muster_step_part_last_seconds", part="backward") == 0
    assert value(metrics, "muster_samples_per_second") == 2
    assert value(metrics, "muster_tokens_per_second") == 50
    assert value(metrics, "muster_mfu_ratio") == pytest.approx(0.3)  # 100 tokens × 6 GFLOP in 2 s, of 1 TFLOP/s
    assert (value(metrics, "muster_loss"), value(metrics, "muster_grad_norm")) == (2.5, 0.5)


def test_communication_that_was_sampled_stays_until_the_next_sample(place: Place) -> None:
    metrics = Metrics(place, "run", Worth())
    metrics.step(step())
    assert value(metrics, "muster_backward_communication_seconds") is None
    metrics.step(step(communication=Communication(0.75, 0.5)))
    metrics.step(step())
    assert value(metrics, "muster_backward_communication_seconds") == 0.75
    assert value(metrics, "muster_backward_communication_exposed_seconds") == 0.5
    assert value(metrics, "muster_backward_communication_exposed_ratio") == 0.25


def test_a_pass_of_a_longer_step_is_no_more_than_all_of_this_one(place: Place) -> None:
    metrics = Metrics(place, "run", Worth())
    metrics.step(step(seconds=2, communication=Communication(3.0, 2.5)))
    assert value(metrics, "muster_backward_communication_exposed_ratio") == 1.0


def test_mfu_is_absent_where_a_figure_for_it_is_missing() -> None:
    assert mfu(step(tokens=100), Worth(flops_per_token=1)) is None
    assert mfu(step(tokens=0), Worth(flops_per_token=1, peak_flops=1)) is None
    assert mfu(step(samples=3), Worth(flops_per_sample=10, peak_flops=30)) == pytest.approx(0.5)


def test_checkpoints_tell_their_size_and_time(place: Place) -> None:
    metrics = Metrics(place, "run", Worth())
    metrics.event(Event(0, "checkpoint.saved", "info", 1, {"bytes": 1000, "seconds": 2.0}))
    metrics.event(Event(0, "checkpoint.saved", "info", 2, {"bytes": "many", "seconds": True}))
    metrics.event(Event(0, "checkpoint.copied", "info", 3, {"seconds": 0.25}))
    assert value(metrics, "muster_checkpoint_bytes", kind="saved") == 1000
    assert value(metrics, "muster_checkpoint_seconds_sum", kind="saved") == 2
    assert value(metrics, "muster_checkpoint_seconds_count", kind="saved") == 1
    assert value(metrics, "muster_checkpoint_seconds_sum", kind="copied") == 0.25
    assert value(metrics, "muster_events_total", event="checkpoint.saved", level="info") == 2


def test_names_without_end_do_not_make_series_without_end(place: Place) -> None:
    metrics = Metrics(place, "run", Worth())
    for number in range(2000):
        metrics.event(Event(0, f"event.{number}", "info", 1))
        metrics.event(Event(0, f"checkpoint.{number}", "info", 1, {"seconds": 1.0}))
        metrics.step(Step(number, 0, 10**9, {f"phase {number}": 1000}))
    assert len(samples(metrics)) < 800
    assert value(metrics, "muster_events_total", event=OTHER, level="info") > 3000
    assert value(metrics, "muster_step_part_seconds_total", part=OTHER) > 0


@given(st.lists(st.text(max_size=120), max_size=60))
def test_a_bounded_label_takes_no_more_values_than_it_may(names: list[str]) -> None:
    bounded = Bounded(5, ["data"], Redactor())
    assert len({bounded(name) for name in [*names, "data"]}) <= 6
    assert bounded("data") == "data"


def test_a_counter_that_its_driver_reset_counts_on(place: Place) -> None:
    metrics = Metrics(place, "run", Worth())
    for now in (100.0, 150.0, 20.0, 30.0):
        metrics.reading(Reading("network_receive_bytes", "x", now, True, {"interface": "eth0"}))
    assert value(metrics, "muster_network_receive_bytes_total", interface="eth0") == 180


def test_a_pushgateway_has_what_each_rank_pushed_last(pushgateway: Server, tmp_path: Path) -> None:
    for rank in range(2):
        here = Place(rank=rank, world=2, local_rank=rank, local_world=2, node="n", attempt="a")
        config = {"run": "pushed", "console": "off", "push": {"url": pushgateway.url, "every_s": 600}}
        telemetry = Telemetry(TelemetryConfig.model_validate(config), here)
        with telemetry.phase("forward"):
            pass
        telemetry.step_done(7, samples=3)
        telemetry.close(20)
        assert not any(telemetry.dropped.values())
    groups = [each for each in pushgateway.get("/api/v1/metrics")["data"] if each["labels"].get("run") == "pushed"]
    assert {(each["labels"]["job"], each["labels"]["rank"]) for each in groups} == {("muster", "0"), ("muster", "1")}
    for group in groups:
        (metric,) = group["muster_step"]["metrics"]
        assert float(metric["value"]) == 7


def test_no_secret_of_the_environment_is_in_a_scrape(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HF_TOKEN", "Xq7rT2mZ9kLw")
    telemetry = Telemetry(TelemetryConfig(console="off", hardware_every_s=0), place)
    telemetry("with.Xq7rT2mZ9kLw", key="Xq7rT2mZ9kLw")
    with telemetry.phase("Xq7rT2mZ9kLw"):
        pass
    telemetry.step_done(1)
    telemetry.close()
    text = generate_latest(telemetry.metrics.registry).decode()
    assert "with." in text
    assert "Xq7rT2mZ9kLw" not in text
