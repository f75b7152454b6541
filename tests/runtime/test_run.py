"""A run goes on where it was, whatever ended it, and ends with the code that says what happened."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from gate import held
from jobs import Job, Jobs
from outcomes import ended, events, of

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
    (began,) = of(log.read_text(), "run.began")
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


@pytest.mark.parametrize("blind", [0, 1])
def test_a_rank_that_sees_another_folder_is_named_and_nothing_begins_anew(
    jobs: Jobs, folder: Path, whole: dict[int, str], blind: int
) -> None:
    """As where the shared filesystem is not mounted on one node."""
    job = jobs.start(TINY, "run.yaml", folder=folder, world=2, TINY_PAUSE_S="0.25")
    job.until("checkpoint.saved", times=2)
    for rank in range(2):
        job.kill(rank)
    assert job.codes() == [-signal.SIGKILL] * 2
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder, world=2, TINY_FAULT=f"unmounted:start:{blind}")
    assert codes == [Exit.RESUMABLE_FAILURE] * 2, logs[0][-3000:]
    for rank, log in enumerate(logs):
        (failed,) = of(log, "failed")
        assert f"ranks {blind} see none · mount it on their nodes" in failed["text"]
        assert failed["kind"] == ("storage" if rank == blind else "peer_lost")
        assert not of(log, "run.began")
    assert finish(jobs, folder, 2) == whole[2]


def test_a_run_stops_with_a_save_before_its_deadline(jobs: Jobs, folder: Path, whole: dict[int, str]) -> None:
    early = ["--set", "stops.margin_s=55"]
    until = str(int(time.time()) + 60)
    codes, logs = jobs.run(TINY, "run.yaml", *early, folder=folder, world=2, TINY_PAUSE_S="0.25", MUSTER_DEADLINE=until)
    assert codes == [Exit.RESUMABLE_STOP] * 2, logs[0][-3000:]
    (stop,) = of(logs[0], "stop.agreed")
    assert (stop["reasons"], stop["save"]) == (["deadline"], True)
    assert finish(jobs, folder, 2) == whole[2]
    assert resumed_at(folder) == stop["step"]


def test_the_wait_before_another_start_ends_on_all_ranks_with_a_signal_to_one(jobs: Jobs, folder: Path) -> None:
    with held(folder, "forward:1"):
        job = jobs.start(TINY, "run.yaml", folder=folder, world=2)
        for rank in (0, 1):
            job.until("held in forward:1", rank)
            job.kill(rank)
    assert job.codes() == [-signal.SIGKILL] * 2
    far = str(int(time.time()) + 3600)  # a deadline that is known ends no wait
    job = jobs.start(TINY, "run.yaml", "--set", "restarts.wait_s=300", folder=folder, world=2, MUSTER_DEADLINE=far)
    job.until("restart.waits")
    job.kill(1, signal.SIGUSR1)
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2, job.log()[-3000:]
    assert [each["reasons"] for each in of(job.log(), "stop.agreed")] == [["SIGUSR1"]]


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
    (failed,) = of(job.log(), "failed")
    assert failed["kind"] == "peer_lost"
    assert finish(jobs, folder, 2) == whole[2]


def test_a_loss_that_is_no_number_is_skipped_or_gone_back_from(jobs: Jobs, folder: Path) -> None:
    """The bad batch is left out in both; going back does the steps since the last save again, to the same weights."""
    skipped = finish(jobs, folder, 2, TINY_FAULT="nan:6:1")
    other = made(folder.parent / "back", more="loss: {on_nan: roll_back}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=other, world=2, TINY_FAULT="nan:6:1")
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    (back,) = of(logs[0], "loss.rolled_back")
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


def test_a_device_that_silently_computes_wrong_is_named(jobs: Jobs, folder: Path) -> None:
    """All ranks add up what it computed: replicas stay equal, and only a computation that all know shows it."""
    made(folder / "odd", more="replicas: {every_steps: 1, probe_every_steps: 5}\n")
    codes, logs = jobs.run(TINY, "run.yaml", folder=folder / "odd", world=3, TINY_FAULT="device:6:2", TINY_BATCH="6")
    assert codes == [Exit.FAILED] * 3
    assert "compute differently after step 10: ranks 2" in logs[0]
    for log in logs:
        (failed,) = [each for each in events(log) if each["event"] == "failed"]
        assert failed["kind"] == "replicas"
        assert "emergency.saved" not in log
    made(folder / "start", more="replicas: {probe_every_steps: 1000}\n")
    codes, logs = jobs.run(
        TINY, "run.yaml", folder=folder / "start", world=3, TINY_FAULT="device:start:2", TINY_BATCH="6"
    )
    assert codes == [Exit.FAILED] * 3
    assert "compute differently after step 0: ranks 2" in logs[1]


def test_shards_differ_and_replicas_of_one_shard_may_not(jobs: Jobs, folder: Path) -> None:
    (folder / "sharded.py").write_text(SHARDED)
    for world, replicas in ((2, 1), (4, 2)):
        codes, logs = jobs.run(folder / "sharded.py", str(replicas), folder=folder, world=world)
        assert codes == [0] * world, logs[0][-3000:]
        told = [[json.loads(line) for line in log.splitlines() if line.startswith("{")] for log in logs]
        if replicas == 1:  # no shard has a replica: nothing is compared, and that is said
            assert {(each["event"], tuple(each["ranks"])) for own in told for each in own} == {
                ("replica.not_compared", (0, 1))
            }
        else:
            assert {(each["event"], tuple(each["ranks"])) for own in told for each in own} == {
                ("replica.differs", (1, 3))
            }


SHARDED = """
import json, sys
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from runtime.connect import connect
from runtime.control import Control
from runtime.failures.replicas import ReplicaConfig, ReplicaError
from runtime.replicas import Replicas

place = connect(seed=1, limit_s=60)
replicas = int(sys.argv[1])
mesh = init_device_mesh("cpu", (replicas, place.world // replicas), mesh_dim_names=("copies", "shards"))
model = fully_shard(torch.nn.Linear(8, 8), mesh=mesh if replicas > 1 else mesh["shards"])

def tell(event, /, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

seen = Replicas(ReplicaConfig(every_steps=1), model, Control(place), tell)
if replicas > 1:
    def quiet(event, /, **fields):
        raise AssertionError(event)
    Replicas(ReplicaConfig(every_steps=1), model, Control(place), quiet).look(1)
    if place.rank == 3:
        with torch.no_grad():
            next(model.parameters()).to_local().view(-1)[0] += 1e-3
try:
    seen.look(2)
except ReplicaError:
    assert replicas > 1
else:
    assert replicas == 1
torch.distributed.destroy_process_group()
"""


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


@pytest.mark.parametrize("hangs", [STEPS - 4, STEPS])
def test_a_run_whose_last_save_does_not_come_to_stand_is_not_done(
    jobs: Jobs, folder: Path, whole: dict[int, str], hangs: int
) -> None:
    """It hangs, or the one before it does and is in its way."""
    with held(folder, f"write:{hangs}"):
        codes, logs = jobs.run(TINY, "run.yaml", "--set", "checkpoints.save_limit_s=1", folder=folder)
    assert codes == [Exit.RESUMABLE_FAILURE], logs[0][-3000:]
    assert finish(jobs, folder) == whole[1]
    assert resumed_at(folder) == hangs - 4


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
