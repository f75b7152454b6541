"""Curves arrive in TensorBoard's files and in a run of Weights & Biases; a third board needs two methods."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
from runtime.telemetry.config import Worth
from runtime.telemetry.overlap import Communication
from runtime.telemetry.record import Step
from runtime.telemetry.sinks import ToBoard, figures

ROOT = Path(__file__).parents[3]


STEPS = [1, 2, 3, 4, 5, 3, 4, 5, 6]
"""The fifth is bad: the run goes back to the second."""


def trains(telemetry: Telemetry) -> None:
    for number in STEPS:
        with telemetry.phase("forward"):
            pass
        telemetry.step_done(number, samples=2, loss=1 / number)
    telemetry.close(60)
    assert not any(telemetry.dropped.values())


def test_tensorboard_reads_the_curves_of_rank_0(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rank in range(2):
        config = {"console": "off", "hardware_every_s": 0, "tensorboard": tmp_path / f"rank{rank}"}
        trains(Telemetry(TelemetryConfig.model_validate(config), Place(rank=rank, world=2)))
    assert not (tmp_path / "rank1").exists()
    read = EventAccumulator(str(tmp_path / "rank0"))
    read.Reload()

    def drawn(name: str) -> list[Any]:
        return list(read.Tensors(name) if name in read.Tags()["tensors"] else read.Scalars(name))

    losses = drawn("train/loss")
    assert [each.step for each in losses] == STEPS
    assert [each.step for each in drawn("train/rolled_back_from")] == [3]
    assert "speed/samples_per_second" in {*read.Tags()["tensors"], *read.Tags()["scalars"]}


def test_a_run_of_weights_and_biases_is_written_offline_and_keeps_what_was_done_twice(tmp_path: Path) -> None:
    program = """
import json
import sys
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
config = {"run": "offline", "console": "json", "hardware_every_s": 0, "folder": sys.argv[1],
          "wandb": {"project": "p", "offline": True}}
telemetry = Telemetry(TelemetryConfig.model_validate(config), Place())
for number in json.loads(sys.argv[2]):
    with telemetry.phase("forward"):
        pass
    telemetry.step_done(number, samples=2, loss=1 / number)
telemetry.close(90)
assert not any(telemetry.dropped.values()), telemetry.dropped
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), json.dumps(STEPS)],
        cwd=ROOT,
        env={**os.environ, "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "less than" not in done.stderr  # W&B's words where it drops a step
    (written,) = tmp_path.glob("wandb/offline-run-*-offline/run-offline.wandb")
    history, axes = read_wandb(written.read_bytes())
    assert [each["train/step"] for each in history] == STEPS
    assert [each["train/loss"] for each in history] == pytest.approx([1 / each for each in STEPS])
    assert [each.get("train/rolled_back_from") for each in history] == [None] * 5 + [5] + [None] * 3
    assert all("speed/samples_per_second" in each for each in history)
    assert axes == {"*": "train/step"}


def read_wandb(raw: bytes) -> tuple[list[dict[str, float]], dict[str, str]]:
    """The rows of a run's file, and the axes of its figures. It is LevelDB's log format: blocks of 32 KiB, in which a
    record has a checksum of four bytes, a length of two, a type (whole, first, middle, last), and its data."""
    from wandb.proto.wandb_internal_pb2 import Record

    history: list[dict[str, float]] = []
    axes: dict[str, str] = {}
    at, held = 7, b""
    while at < len(raw):
        if (1 << 15) - at % (1 << 15) < 7:
            at += (1 << 15) - at % (1 << 15)
            continue
        length, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        held += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record, held = Record.FromString(held), b""
            if record.WhichOneof("record_type") == "history":
                items = {each.key or "/".join(each.nested_key): each.value_json for each in record.history.item}
                history.append({name: json.loads(value) for name, value in items.items()})
            if record.WhichOneof("record_type") == "metric":
                axes[record.metric.glob_name or record.metric.name] = record.metric.step_metric
    return history, axes


class Kept:
    """Another board."""

    def __init__(self) -> None:
        self.written: list[tuple[int, Mapping[str, float]]] = []

    def write(self, step: int, values: Mapping[str, float], at_ns: int) -> None:
        assert at_ns >= 0
        self.written.append((step, values))

    def close(self) -> None:
        self.written.append((-1, {}))


def test_a_board_gets_seconds_rates_and_losses() -> None:
    kept = Kept()
    board = ToBoard(kept, Worth(flops_per_sample=1, peak_flops=4))
    board.take([Step(7, 0, 2 * 10**9, {"data": 5 * 10**8}, samples=4, loss=0.5)])
    board.take([Step(8, 0, 10**9, {}, communication=Communication(0.5, 0.25)), Step(8, 0, 10**9, {})])
    board.close()
    (number, values), (_, measured), (_, again), ended = kept.written
    assert (number, ended[0]) == (7, -1)
    assert measured == {
        "time/step_s": 1, "time/backward_communication_s": 0.5, "time/backward_communication_exposed_s": 0.25
    }  # fmt: skip
    assert again == {"time/step_s": 1, "train/rolled_back_from": 8}
    assert values == pytest.approx(
        {"time/step_s": 2, "time/data_s": 0.5, "train/loss": 0.5, "train/mfu": 0.5, "speed/samples_per_second": 2}
    )
    assert figures(Step(1, 0, 0, {}), Worth()) == {"time/step_s": 0}
