"""Curves arrive in TensorBoard's files and in a run of Weights & Biases; a third board needs two methods."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
from runtime.telemetry.config import Worth
from runtime.telemetry.record import Step
from runtime.telemetry.sinks import ToBoard, figures

ROOT = Path(__file__).parents[3]


def trains(telemetry: Telemetry) -> None:
    for number in range(1, 4):
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
    losses = read.Tensors("train/loss") if "train/loss" in read.Tags()["tensors"] else read.Scalars("train/loss")
    assert [each.step for each in losses] == [1, 2, 3]
    assert "speed/samples_per_second" in {*read.Tags()["tensors"], *read.Tags()["scalars"]}


def test_a_run_of_weights_and_biases_is_written_offline(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
config = {"run": "offline", "console": "json", "hardware_every_s": 0, "folder": sys.argv[1],
          "wandb": {"project": "p", "offline": True}}
telemetry = Telemetry(TelemetryConfig.model_validate(config), Place())
for number in range(1, 4):
    with telemetry.phase("forward"):
        pass
    telemetry.step_done(number, samples=2, loss=1 / number)
telemetry.close(90)
assert not any(telemetry.dropped.values()), telemetry.dropped
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("wandb/offline-run-*-offline/run-offline.wandb")
    raw = written.read_bytes()
    assert b"train/loss" in raw
    assert raw.count(b"speed/samples_per_second") >= 3


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
    board.close()
    (number, values), ended = kept.written
    assert (number, ended[0]) == (7, -1)
    assert values == pytest.approx(
        {"time/step_s": 2, "time/data_s": 0.5, "train/loss": 0.5, "train/mfu": 0.5, "speed/samples_per_second": 2}
    )
    assert figures(Step(1, 0, 0, {}), Worth()) == {"time/step_s": 0}
