"""Accelerate's wrappers are taken off, a step counts only where the optimizer stepped, and ranks stop together."""

import signal
from pathlib import Path

from gate import held
from jobs import Jobs
from outcomes import contents, ended, of

from runtime.exits import Exit

TINY = Path(__file__).with_name("tiny_accelerate.py")
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
