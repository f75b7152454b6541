"""Accelerate's wrappers are taken off, a step counts only where the optimizer stepped, and ranks stop together."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from gate import held
from jobs import Jobs
from outcomes import contents, ended, of

from runtime.accelerate import AcceleratedRun
from runtime.config import ConfigError
from runtime.exits import Exit

TINY = Path(__file__).with_name("tiny_accelerate.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "image" / "with_accelerate.py"
QUICK = ["--set", "steps=12", "--set", "save.every_steps=4", "--set", "telemetry.console=json"]
CONFIG = """
steps: 10
seed: 3
checkpoints: {folder: saved, keep: {keep_last: 99}}
save: {every_steps: SAVE}
telemetry: {console: json, hardware_every_s: 0}
stops: {margin_s: 0, teardown_s: 2}
restarts: {wait_s: 0}
"""


def made(folder: Path, save: int) -> Path:
    folder.mkdir()
    (folder / "run.yaml").write_text(CONFIG.replace("SAVE", str(save)))
    return folder


def test_a_signal_stops_both_ranks_and_the_run_goes_on_to_the_same_weights(jobs: Jobs, tmp_path: Path) -> None:
    """40 points are 2.5 batches of 16: the epochs end in the middle of steps."""
    undisturbed, folder = made(tmp_path / "whole", 1), made(tmp_path / "stopped", 3)
    codes, whole = jobs.run(TINY, "run.yaml", folder=undisturbed, world=2)
    assert codes == [Exit.DONE] * 2, whole[0][-3000:]

    with held(folder, "forward:5"):
        job = jobs.start(TINY, "run.yaml", folder=folder, world=2)
        for rank in range(2):
            job.until("held in forward:5", rank)
        job.kill(1, signal.SIGUSR1)
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2, job.log()[-3000:]
    (stop,) = of(job.log(), "stop.agreed")
    assert stop["step"] in (5, 6)
    assert contents(folder / "saved", stop["step"]) == contents(undisturbed / "saved", stop["step"])

    codes, again = jobs.run(TINY, "run.yaml", folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, again[0][-3000:]
    assert [of(log, "run.began")[0]["step"] for log in again] == [stop["step"]] * 2
    assert [ended(log) for log in again] == [ended(log) for log in whole]


def test_the_batch_is_kept_at_any_number_of_ranks(jobs: Jobs, tmp_path: Path) -> None:
    batch = ["--set", "batch.batch=64", "--set", "batch.micro=32"]
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        codes, logs = jobs.run(EXAMPLE, *QUICK, *batch, folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        (began,) = of(logs[0], "run.began")
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
