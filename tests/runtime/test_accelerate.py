"""Accelerate's wrappers are taken off, and a step counts only where the optimizer stepped."""

import json
import signal
from pathlib import Path

from jobs import Jobs

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
