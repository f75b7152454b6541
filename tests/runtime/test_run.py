"""A run goes on where it was, whatever ended it, and ends with the code that says what happened."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from jobs import Job, Jobs, events

from runtime.exits import Exit

TINY = Path(__file__).with_name("tiny.py")
CONFIG = """
steps: {steps}
seed: 3
checkpoints: {{folder: saved}}
save: {{every_steps: 4}}
telemetry: {{console: json, hardware_every_s: 0}}
stops: {{margin_s: 0, teardown_s: 2}}
control_s: 20
restarts: {{wait_s: 0}}
"""
STEPS = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "job")


def made(folder: Path, steps: int = STEPS, more: str = "") -> Path:
    folder.mkdir()
    (folder / "run.yaml").write_text(CONFIG.format(steps=steps) + more)
    return folder


def ended(log: str) -> str:
    """The line in which the job says what it came to."""
    (found,) = re.findall(r"^end .*$", log, re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def whole(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What an uninterrupted run comes to, by world size."""
    found = {}
    for world in (1, 2):
        folder = made(tmp_path_factory.mktemp("whole") / "job")
        codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0]
        assert len({ended(log) for log in logs}) == 1
        found[world] = ended(logs[0])
    return found


def finish(jobs: Jobs, folder: Path, world: int = 1, **env: str) -> str:
    """Starts the job again to its end; what it came to."""
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=world, **env)
    assert codes == [Exit.DONE] * world, logs[0][-3000:]
    return ended(logs[0])


def resumed_at(folder: Path) -> int:
    """The step at which the last job in a folder began."""
    log = max(folder.glob("job-*-rank-0.log"), key=lambda path: int(path.name.split("-")[1]))
    (began,) = [each for each in events(log.read_text()) if each["event"] == "run.began"]
    return int(began["step"])


def test_a_run_is_the_same_every_time(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    assert finish(jobs, folder) == whole[1]
    assert f"steps={STEPS} samples={STEPS * 8} " in whole[1]


@pytest.mark.parametrize("world", [1, 2])
def test_a_killed_run_goes_on_to_the_same_weights(jobs: Jobs, folder: Path, whole: dict[int, str], world: int) -> None:
    job = jobs.start(TINY, "run.yaml", folder=folder, world=world, TINY_PAUSE_S="0.25")
    job.until("checkpoint.saved", times=2)
    for rank in range(world):
        job.kill(rank)
    assert job.codes() == [-signal.SIGKILL] * world
    assert finish(jobs, folder, world) == whole[world]
    assert resumed_at(folder) >= 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_to_one_rank_stops_all_resumable(
    jobs: Jobs, folder: Path, whole: dict[int, str], number: signal.Signals
) -> None:
    job = jobs.start(TINY, "run.yaml", folder=folder, world=2, TINY_PAUSE_S="0.25", TINY_WORKERS="1")
    job.until("checkpoint.saved")
    job.kill(1, number)
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2
    assert "end steps" not in job.log()
    (stop,) = [each for each in events(job.log()) if each["event"] == "stop.agreed"]
    assert finish(jobs, folder, 2) == whole[2]
    assert resumed_at(folder) == stop["step"]  # not at the last regular save


def test_the_world_may_change_between_starts_and_no_sample_is_lost(jobs: Jobs, folder: Path) -> None:
    worlds = [4, 2, 4, 1]
    seen = []
    for at, world in enumerate(worlds):
        codes, logs = jobs.run(TINY, "run.yaml", "--set", f"steps={5 * (at + 1)}", folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        seen.append(ended(logs[0]).split()[1:3])
    assert seen == [[f"steps={5 * n}", f"samples={40 * n}"] for n in (1, 2, 3, 4)]


def test_a_fault_of_the_program_saves_what_there_is_and_says_that_starting_again_does_not_help(
    jobs: Jobs, folder: Path, whole: dict[int, str]
) -> None:
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, TINY_FAULT="loss:6")
    assert codes == [Exit.FAILED]
    told = {each["event"]: each for each in events(logs[0])}
    assert told["failed"]["kind"] == "program"
    assert "a fault of the program" in json.dumps(told["failed"]["exception"])
    assert "emergency.saved" in told
    assert finish(jobs, folder) == whole[1]
    assert resumed_at(folder) == 6  # the last regular save was at 4


def test_a_step_half_done_is_not_saved(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    """Weights and learning rate are of two steps: the last save is what there is."""
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, TINY_FAULT="update:6")
    assert codes == [Exit.RESUMABLE_FAILURE]
    assert "emergency.not_tried" in logs[0]
    assert finish(jobs, folder) == whole[1]
    assert resumed_at(folder) == 4


def test_a_lost_peer_is_a_resumable_failure_of_the_others(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    job = jobs.start(TINY, "run.yaml", folder=folder, world=2, TINY_PAUSE_S="0.25")
    job.until("checkpoint.saved")
    job.kill(1)
    assert job.codes() == [Exit.RESUMABLE_FAILURE, -signal.SIGKILL]
    (failed,) = [each for each in events(job.log()) if each["event"] == "failed"]
    assert failed["kind"] == "peer_lost"
    assert finish(jobs, folder, 2) == whole[2]


def test_a_loss_that_is_no_number_is_skipped_or_gone_back_from(jobs: Jobs, folder: Path) -> None:
    """The bad batch is left out in both; going back does the steps since the last save again, to the same weights."""
    skipped = finish(jobs, folder, 2, TINY_FAULT="nan:6:1")
    other = made(folder.parent / "back", more="loss: {on_nan: roll_back}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=other, world=2, TINY_FAULT="nan:6:1")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    (back,) = [each for each in events(logs[0]) if each["event"] == "loss.rolled_back"]
    assert (back["step"], back["left"]) == (4, 6)
    assert ended(logs[0]) == skipped


def test_a_loss_that_stays_bad_stops_the_run_for_good(jobs: Jobs, folder: Path) -> None:
    made(folder / "stop", more="loss: {on_nan: stop}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "stop", world=2, TINY_FAULT="nan:6:1")
    assert codes == [Exit.FAILED] * 2
    assert all('"kind":"loss"' in log for log in logs)


def test_replicas_that_part_are_named(jobs: Jobs, folder: Path) -> None:
    made(folder / "odd", more="replicas: {every_steps: 5}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "odd", world=3, TINY_FAULT="bit:7:2", TINY_BATCH="6")
    assert codes == [Exit.FAILED] * 3
    assert "replicas differ after step 10: ranks 2" in logs[0]


def test_a_run_that_gets_nowhere_is_not_started_for_ever(jobs: Jobs, folder: Path) -> None:
    for _ in range(3):
        codes, _ = jobs.run(TINY, "run.yaml", folder=folder, TINY_FAULT="update:2")
        assert codes == [Exit.RESUMABLE_FAILURE]
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, TINY_FAULT="update:2")
    assert codes == [Exit.FAILED]
    assert "failed without a new checkpoint" in logs[0]


def test_a_done_run_that_is_started_again_does_nothing(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    assert finish(jobs, folder) == whole[1]
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.glob("saved/step-*/*"))
    assert finish(jobs, folder) == whole[1]
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.glob("saved/step-*/*")) == before


def test_checkpoints_of_other_data_are_refused_and_left_alone(jobs: Jobs, folder: Path) -> None:
    finish(jobs, folder)
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.glob("saved/step-*/*"))
    codes, logs = jobs.run(TINY, "run.yaml", "--set", "seed=4", "--set", "steps=40", folder=folder)
    assert codes == [Exit.FAILED]
    assert "data seed: 4, but the checkpoint's was 3" in logs[0]
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.glob("saved/step-*/*")) == before


def test_old_checkpoints_go_when_newer_ones_are_proven(jobs: Jobs, folder: Path) -> None:
    finish(jobs, folder)
    assert len(list(folder.glob("saved/step-*"))) == 2


def test_a_configuration_that_cannot_be_is_told_by_line_and_starts_nothing(jobs: Jobs, folder: Path) -> None:
    made(folder / "other", more="save_limit: 3\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "other")
    assert codes == [Exit.FAILED]
    assert "run.yaml:9: save_limit: no such key · did you mean" in logs[0] or "the keys here are" in logs[0]


def test_stopped_before_the_first_step_it_begins_anew(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    job: Job = jobs.start(TINY, "run.yaml", folder=folder, TINY_PAUSE_S="1")
    job.until("run.began")
    job.kill(0, signal.SIGTERM)
    assert job.codes() == [Exit.RESUMABLE_STOP]
    shutil.rmtree(folder / "saved" / "stacks", ignore_errors=True)
    assert finish(jobs, folder) == whole[1]
