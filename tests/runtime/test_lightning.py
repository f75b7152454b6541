"""A Trainer with the callback: exact on resume, one code for all ranks, and its own counts go on."""

import re
import signal
from pathlib import Path

import pytest
from gate import held
from jobs import Jobs
from outcomes import ended, of

from runtime.exits import Exit

TINY = Path(__file__).with_name("tiny_lightning.py")
CONFIG = """
steps: 14
seed: 3
checkpoints: {folder: saved}
save: {every_steps: 3}
telemetry: {console: json, hardware_every_s: 0}
stops: {margin_s: 0, teardown_s: 2}
restarts: {wait_s: 0}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path


def test_signals_and_failures_end_with_their_code_and_resume_to_the_same_weights(jobs: Jobs, folder: Path) -> None:
    """40 points are 2.5 batches of 16: stops fall in the middle of epochs."""
    (folder / "whole").mkdir()
    (folder / "whole" / "run.yaml").write_text(CONFIG)
    codes, whole = jobs.run(TINY, "run.yaml", folder=folder / "whole", world=2)
    assert codes == [Exit.DONE] * 2, whole[0][-3000:]

    with held(folder, "forward:5"):
        stopped = jobs.start(TINY, "run.yaml", folder=folder, world=2)
        for rank in range(2):
            stopped.until("held in forward:5", rank)
        stopped.kill(1, signal.SIGTERM)
    assert stopped.codes() == [Exit.RESUMABLE_STOP] * 2, stopped.log()[-3000:]
    (stop,) = of(stopped.log(), "stop.agreed")
    assert stop["step"] in (5, 6)

    codes, failed = jobs.run(TINY, "run.yaml", folder=folder, world=2, TINY_FAULT="loss:11")
    assert codes == [Exit.FAILED] * 2, failed[0][-3000:]
    assert [of(log, "run.began")[0]["step"] for log in failed] == [stop["step"]] * 2
    assert "a fault of the program" in failed[0]
    assert "emergency.saved" in failed[0] + failed[1]

    codes, again = jobs.run(TINY, "run.yaml", folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, again[0][-3000:]
    assert of(again[0], "run.began")[0]["step"] == 11
    assert ended(again[0]) == ended(whole[0])
    assert "steps=14 " in ended(again[0])

    codes, done = jobs.run(
        TINY, "run.yaml", folder=folder, world=2
    )  # not a step more; the Trainer counts no epoch for it
    assert codes == [Exit.DONE] * 2
    assert re.sub(r"epoch=\d+", "", ended(done[0])) == re.sub(r"epoch=\d+", "", ended(whole[0]))
