"""Every signal in every phase of a step, for one rank and for all: real runs, processes, signals and checkpoints."""

import signal
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gate import held
from jobs import Job, Jobs
from outcomes import contents, ended, of

from runtime.checkpoint.tier import Tier
from runtime.exits import Exit
from runtime.stops.signals import STOPPING

TINY = Path(__file__).parents[1] / "tiny.py"
STEPS, SAVE_EVERY = 8, 2
CONFIG = """
steps: {steps}
seed: 3
checkpoints: {{folder: saved, keep: {{keep_last: 9}}}}
save: {{every_steps: {every}}}
telemetry: {{console: json, hardware_every_s: 0}}
stops: {stops}
control_s: 20
"""
STOPS = "{margin_s: 0, teardown_s: 2}"

PHASES = {
    "data": ["data:4"],
    "forward": ["forward:4"],
    "backward": ["backward:4"],
    "collective": ["collective:4"],  # the last rank is held before it, the other waits for it within
    "save, copying": ["copy:4"],
    "save, writing": ["write:4", "data:5"],  # in the background, while the next step is under way
}
Signals = Sequence[tuple[int, int]]
"""Rank and number, in the order in which they are sent."""


class Whole(NamedTuple):
    """What a run comes to that nothing interrupts: its last line, and what its checkpoint of each step holds."""

    end: str
    contents: dict[int, Any]


def made(folder: Path, every: int = SAVE_EVERY, stops: str = STOPS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "run.yaml").write_text(CONFIG.format(steps=STEPS, every=every, stops=stops))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.fixture(scope="module")
def whole(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = made(tmp_path_factory.mktemp("whole"), every=1)
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, logs[0]
    return Whole(ended(logs[0]), {step: contents(folder / "saved", step) for step in range(1, STEPS + 1)})


def begun(jobs: Jobs, folder: Path, places: Sequence[str], **env: str) -> Job:
    """A job of two ranks that has come to these places, in which it is held."""
    job = jobs.start(TINY, "run.yaml", folder=folder, world=2, **env)
    for place, rank in product(places, (0, 1)):
        job.until(f"held in {place}\n", rank)
    return job


def send(job: Job, signals: Signals, children: bool = False) -> None:
    for rank, number in signals:
        job.kill(rank, number, children)


def stopped(jobs: Jobs, folder: Path, job: Job, whole: Whole) -> int:
    """The step at which the job stopped. All ranks did, with the code of a stop; what they saved there is what the
    undisturbed run had, and every rank goes on from it to the same end."""
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2, job.log()[-3000:] + job.log(1)[-3000:]
    (step,) = {each["step"] for rank in (0, 1) for each in of(job.log(rank), "stop.agreed")}
    assert contents(folder / "saved", step) == whole.contents[step]
    finish(jobs, folder, whole, {step})
    return int(step)


def finish(jobs: Jobs, folder: Path, whole: Whole, steps: set[int]) -> None:
    """Starts the job again to its end: all ranks resume from one of these steps, and come to what is right."""
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    (step,) = {each["step"] for log in logs for each in of(log, "checkpoint.restored")}
    assert step in steps
    assert [ended(log) for log in logs] == [whole.end] * 2


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)], ids=["rank 0", "rank 1", "both"])
def test_a_signal_in_any_phase_stops_every_rank_at_one_step_with_a_checkpoint_to_resume_from(
    jobs: Jobs, folder: Path, whole: Whole, phase: str, number: signal.Signals, ranks: tuple[int, ...]
) -> None:
    with held(folder, *PHASES[phase]):
        job = begun(jobs, folder, PHASES[phase])
        if phase == "collective":
            job.asleep(0)
        job.until("checkpoint.saved")
        send(job, [(rank, number) for rank in ranks])
        # A stop in the middle of a save does not lose the one before it.
        assert contents(folder / "saved", 2) == whole.contents[2]
    assert 4 <= stopped(jobs, folder, job, whole) <= 6


def test_signals_that_come_again_or_differ_between_ranks_are_one_stop(jobs: Jobs, folder: Path, whole: Whole) -> None:
    with held(folder, "collective:4"):
        job = begun(jobs, folder, ["collective:4"])
        job.asleep(0)
        send(job, [(0, signal.SIGTERM)] * 3 + [(1, signal.SIGUSR1), (0, signal.SIGINT)])
    stopped(jobs, folder, job, whole)


def test_a_signal_before_the_ranks_have_met_is_a_stop_at_the_first_boundary(
    jobs: Jobs, folder: Path, whole: Whole
) -> None:
    with held(folder, "start:0"):
        job = begun(jobs, folder, ["start:0"])
        send(job, [(1, signal.SIGTERM)])
    assert stopped(jobs, folder, job, whole) == 1


def test_a_signal_during_the_last_save_changes_nothing(jobs: Jobs, folder: Path, whole: Whole) -> None:
    last = f"copy:{STEPS}"
    with held(folder, last):
        job = begun(jobs, folder, [last])
        send(job, [(0, signal.SIGTERM), (1, signal.SIGTERM)])
    assert job.codes() == [Exit.DONE] * 2, job.log()
    assert contents(folder / "saved", STEPS) == whole.contents[STEPS]
    assert ended(job.log()) == whole.end


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_data_loader_workers_outlive_the_signals_that_their_rank_gets_too(
    jobs: Jobs, folder: Path, whole: Whole, start: str
) -> None:
    with held(folder, "forward:4"):
        job = begun(jobs, folder, ["forward:4"], TINY_WORKERS="1", TINY_START=start)
        send(job, [(rank, number) for rank in (0, 1) for number in STOPPING], children=True)
    stopped(jobs, folder, job, whole)
    assert "killed by signal" not in job.log() + job.log(1)


def test_a_grace_shorter_than_a_save_leaves_the_last_good_checkpoint_and_says_so(
    jobs: Jobs, tmp_path: Path, whole: Whole
) -> None:
    """A save takes a second at least, and less is left of the grace before the process groups' end."""
    folder = made(tmp_path / "short", stops="{margin_s: 0, teardown_s: 9.5, grace_s: 10}")
    with held(folder, "forward:4"):
        with held(folder, "write:2"):
            job = begun(jobs, folder, ["write:2"])
            time.sleep(1)
        job.until("held in forward:4\n", 0)
        job.until("held in forward:4\n", 1)
        job.until("checkpoint.saved")
        send(job, [(1, signal.SIGTERM)])
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2, job.log()[-3000:]
    for rank in (0, 1):
        assert [each["save"] for each in of(job.log(rank), "stop.agreed")] == [False]
        assert len(of(job.log(rank), "stop.grace_too_short")) == 1
    with Tier(folder / "saved") as tier:
        steps = set(tier.steps())
    assert {2} <= steps <= {2, 4}
    for step in steps:
        assert contents(folder / "saved", step) == whole.contents[step]
    finish(jobs, folder, whole, {max(steps)})
