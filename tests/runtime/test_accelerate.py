"""Accelerate's wrappers are taken off, and a step counts only where the optimizer stepped."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from jobs import Jobs

from runtime.accelerate import AcceleratedRun
from runtime.config import ConfigError
from runtime.exits import Exit

SCRIPT = Path(__file__).parents[2] / "examples" / "image" / "with_accelerate.py"
QUICK = ["--set", "steps=12", "--set", "save.every_steps=4", "--set", "telemetry.console=json"]


def test_two_ranks_gather_gradients_stop_together_and_go_on(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.start(SCRIPT, *QUICK, folder=tmp_path, world=2)
    job.until("checkpoint.saved")
    job.kill(0, signal.SIGTERM)
    codes = job.codes()
    assert codes in ([Exit.RESUMABLE_STOP] * 2, [Exit.DONE] * 2), job.log()[-3000:]
    codes, logs = jobs.run(SCRIPT, *QUICK, folder=tmp_path, world=2)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    assert "done after 12 steps" in logs[0]
    (began,) = [json.loads(line) for line in logs[0].splitlines() if '"run.began"' in line]
    assert began["step"] >= 4


def test_the_batch_is_kept_at_any_number_of_ranks(jobs: Jobs, tmp_path: Path) -> None:
    batch = ["--set", "batch.batch=64", "--set", "batch.micro=32"]
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        codes, logs = jobs.run(SCRIPT, *QUICK, *batch, folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        (began,) = [json.loads(line) for line in logs[0].splitlines() if '"run.began"' in line]
        assert (began["batch"], began["accumulate"]) == (64, 2 // world)
        assert "done after 12 steps" in logs[0]


def test_a_scheduler_whose_pace_follows_the_number_of_ranks_is_refused(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    module = torch.nn.Linear(1, 1)
    bare = torch.optim.SGD(module.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(bare, 0.9)
    model, optimizer, prepared = accelerator.prepare(module, bare, scheduler)
    config: dict[str, Any] = {"checkpoints": {"folder": str(tmp_path)}}
    batch = {"batch": {"batch": 8, "micro": 2}}
    AcceleratedRun(accelerator, config, model=model, optimizer=optimizer, scheduler=prepared)
    for parts in ({"scheduler": prepared}, {"extra": {"rate": prepared}}):
        with pytest.raises(ConfigError, match=r"steps a prepared one once for each process, .* do not prepare it"):
            AcceleratedRun(accelerator, config | batch, model=model, optimizer=optimizer, **parts)
    AcceleratedRun(accelerator, config | batch, model=model, optimizer=optimizer, scheduler=scheduler)
    assert accelerator.gradient_accumulation_steps == 4
