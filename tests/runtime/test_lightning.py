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


def test_the_batch_is_kept_at_any_number_of_ranks_also_at_the_end_of_an_epoch(jobs: Jobs, tmp_path: Path) -> None:
    """40 points are 2.5 batches of 16: a Trainer by itself takes a step of what is left over, more often in a larger
    world."""
    config = CONFIG.replace("steps: 14", "epochs: 2\nbatch: {batch: 16, micro: 2}")
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        (folder / "run.yaml").write_text(config)
        codes, logs = jobs.run(
            TINY, "run.yaml", folder=folder, world=world, TINY_MICRO="2", TINY_ACCUMULATE=str(8 // world)
        )
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        assert f'"batch":16,"accumulate":{8 // world}' in logs[0]
        assert "steps=5 " in ended(logs[0])


def test_two_that_say_how_much_is_accumulated_are_refused(jobs: Jobs, folder: Path) -> None:
    (folder / "run.yaml").write_text(CONFIG + "batch: {batch: 16, micro: 2}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, TINY_MICRO="2", TINY_ACCUMULATE="2")
    assert codes == [1]
    assert "accumulate_grad_batches: the Trainer has its own, but `batch`" in logs[0]
    assert not (folder / "saved").exists()
