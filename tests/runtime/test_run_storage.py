"""A run whose storage fails: training goes on, the older checkpoint stays whole, and nothing hangs.

Real processes on real mounts, in a mount namespace that they share: `mounts` says how each fails.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, Jobs, serving
from mounts import Erring, Frozen, Handed, Namespace, ReadOnly, Small, Stale, Stalling, wait_for
from outcomes import events

from runtime.checkpoint.tier import Tier
from runtime.exits import Exit
from runtime.stops.launch import left

TINY = Path(__file__).with_name("tiny.py")
CONFIG = """
steps: 100000
seed: 3
checkpoints:
  folder: {folder}
  stall_limit_s: {stall_limit_s}
  wait_limit_s: 0.1
  retries: 1
  retry_s: 0.2
  on_failure: {on_failure}
  keep: {{keep_last: 100}}
save: {{every_steps: 4}}
telemetry: {{console: json, hardware_every_s: 0}}
stops: {{margin_s: 0, teardown_s: 4, grace_s: {grace_s}}}
control_s: 100
restarts: {{wait_s: 0}}
"""
GRACE_S = 15.0
Storage = Handed | Small | Erring | Frozen


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    """Starts ranks in a mount namespace of their own."""
    if os.geteuid() != 0:
        pytest.skip("mounts file systems: needs root")
    with serving("unshare", "--mount") as found:
        yield found


@pytest.fixture
def mounted(jobs: Jobs, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes a storage, and takes it away at the end."""
    made: list[Storage] = []

    def make(kind: Callable[..., Storage], *options: str) -> Storage:
        folder = tmp_path / f"storage-{len(made)}"
        folder.mkdir()
        made.append(kind(Namespace(jobs.process.pid), folder, *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def start(
    jobs: Jobs, folder: Path, storage: Storage, stall_limit_s: float = 2, on_failure: str = "go_on", **env: str
) -> Job:
    """A run of two ranks that saves often, and goes on until it is stopped."""
    config = {"stall_limit_s": stall_limit_s, "on_failure": on_failure, "grace_s": GRACE_S}
    (folder / "run.yaml").write_text(CONFIG.format(folder=storage.at / "saved", **config))
    return jobs.start(TINY, "run.yaml", folder=folder, world=2, **({"TINY_PAUSE_S": "0.05"} | env))


def running(jobs: Jobs, folder: Path, storage: Storage, **options: Any) -> tuple[Job, int]:
    """A run that has saved; how many events it had told by then."""
    job = start(jobs, folder, storage, **options)
    job.until("checkpoint.saved", times=2)
    return job, len(events(job.log()))


def stopped(job: Job, code: Exit) -> None:
    """Asks both ranks to stop; whoever asks kills after the grace."""
    for rank in range(2):
        job.kill(rank, signal.SIGTERM)
    assert job.codes(GRACE_S) == [code] * 2, job.log()[-3000:]


def newest(storage: Storage) -> int:
    """The step of the newest checkpoint, whose every byte is right."""
    with Tier(storage.whole / "saved") as tier:
        return verify(storage, tier.steps()[-1])


def verify(storage: Storage, step: int) -> int:
    """The step, whose checkpoint's every byte is right."""
    with Tier(storage.whole / "saved") as tier:
        return tier.verify(step).step


def goes_on(jobs: Jobs, folder: Path, storage: Storage, at: int, **env: str) -> None:
    """The next start resumes at that step, and comes to what a run without any fault does."""
    ended = []
    for to in (storage.at / "saved", folder / "undisturbed"):
        told = ("run.yaml", "--set", f"steps={at + 6}", "--set", f"checkpoints.folder={to}")
        codes, logs = jobs.run(TINY, *told, folder=folder, world=2, **env)
        assert codes == [Exit.DONE] * 2, logs[0][-3000:]
        (began,) = [each for each in events(logs[0]) if each["event"] == "run.began"]
        ended.append((began["step"], logs[0].splitlines()[-1]))
    assert ended[0][0] == at
    assert ended[0][1] == ended[1][1]


def tried(job: Job, since: int) -> set[int]:
    """The steps after which a save failed or was left out: each was a step's end."""
    told = events(job.log())[since:]
    return {each["step"] for each in told if each["event"] in ("checkpoint.failed", "checkpoint.skipped")}


@pytest.mark.parametrize("kind", [Stalling, Stale, Small, ReadOnly, Erring])
def test_training_goes_on_while_storage_fails_and_saves_again_once_it_is_back(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any], kind: Callable[..., Storage]
) -> None:
    storage = mounted(kind)
    job, since = running(jobs, tmp_path, storage)
    older = max(each["step"] for each in events(job.log()) if each["event"] == "checkpoint.saved")
    storage.fail()
    failed = job.hear("checkpoint.failed", since)
    assert kind.says in failed["reason"]  # type: ignore[attr-defined]
    assert str(storage.at) in failed["reason"]
    end = time.monotonic() + 60
    while len(tried(job, since)) < 4:
        assert time.monotonic() < end, job.log()[-3000:]
        time.sleep(0.05)
    if kind is not Erring:  # which does not let anybody look
        verify(storage, older)
    storage.mend()
    verify(storage, older)
    since = len(events(job.log()))
    assert job.hear("checkpoint.saved", since)["step"] > failed["step"]
    stopped(job, Exit.RESUMABLE_STOP)
    goes_on(jobs, tmp_path, storage, newest(storage))


@pytest.mark.parametrize(
    ("stall_s", "stall_limit_s"),
    [
        pytest.param(6, 2, id="6s_given_up"),
        pytest.param(4, 60, id="4s_waited_out"),
        pytest.param(60, 20, id="60s_given_up", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param(60, 120, id="60s_waited_out", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_storage_that_stalls_for_a_while_costs_no_step(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any], stall_s: float, stall_limit_s: float
) -> None:
    """A save that is waited out stands in the end; one that is given up costs itself."""
    storage = mounted(Stalling)
    job, since = running(jobs, tmp_path, storage, stall_limit_s=stall_limit_s)
    storage.fail()
    time.sleep(stall_s)
    assert len(tried(job, since)) > stall_s  # every 0.3 s one is due
    newest(storage)
    again = len(events(job.log()))
    storage.mend()
    job.hear("checkpoint.saved", again)
    told = [each["event"] for each in events(job.log())[since:]]
    assert ("checkpoint.failed" in told) is (stall_s > stall_limit_s)
    stopped(job, Exit.RESUMABLE_STOP)
    goes_on(jobs, tmp_path, storage, newest(storage))


def test_a_stop_while_storage_answers_nothing_ends_in_time_and_the_older_checkpoint_is_resumed_from(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any]
) -> None:
    """The calls hang beyond the grace, and after the processes have ended."""
    storage = mounted(Stalling)
    job, since = running(jobs, tmp_path, storage, stall_limit_s=600)
    storage.fail()
    job.hear("checkpoint.skipped", since)
    stopped(job, Exit.RESUMABLE_FAILURE)
    assert "step.stuck" not in job.log()
    older = newest(storage)
    assert "run.began" not in stopped_at_start(jobs, tmp_path, storage)
    storage.mend()
    goes_on(jobs, tmp_path, storage, older)


def stopped_at_start(jobs: Jobs, folder: Path, storage: Storage) -> str:
    """The log of a run that is stopped while it waits for storage before its first step."""
    job = start(jobs, folder, storage, stall_limit_s=600)
    time.sleep(3)
    stopped(job, Exit.RESUMABLE_FAILURE)
    return job.log()


@pytest.mark.parametrize("kind", [Stalling, Stale])
def test_a_start_on_storage_that_is_gone_says_so_and_neither_hangs_nor_begins_anew(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any], kind: Callable[..., Storage]
) -> None:
    storage = mounted(kind)
    job, _ = running(jobs, tmp_path, storage)
    stopped(job, Exit.RESUMABLE_STOP)
    older, there = newest(storage), sorted(storage.whole.rglob("*"))
    storage.fail()
    job = start(jobs, tmp_path, storage)
    assert job.codes() == [Exit.RESUMABLE_FAILURE] * 2
    told = [next(each for each in events(job.log(rank)) if each["event"] == "failed") for rank in range(2)]
    assert [each["kind"] for each in told] == ["storage", "peer_lost"]
    assert told[0]["text"].count(" · ") == 2, told[0]
    what, where, advice = told[0]["text"].split(" · ")
    assert what.startswith("cannot ")
    assert where.startswith(str(storage.at))
    assert kind.says in told[0]["text"]  # type: ignore[attr-defined]
    assert "mount" in advice
    assert "run.began" not in job.log()
    storage.mend()
    assert sorted(storage.whole.rglob("*")) == there
    goes_on(jobs, tmp_path, storage, older)


def test_a_rank_that_cannot_write_costs_its_saves_and_no_wait_for_it(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any]
) -> None:
    """One rank's files cannot grow; the leader's can. Both know at the next save that this one cannot come to stand."""
    storage = mounted(Handed)
    # Its part of a checkpoint is longer than the limit, which holds for its log too.
    wide = {"TINY_WIDTH": "16384"}
    job, since = running(jobs, tmp_path, storage, **wide)
    before = resource.prlimit(job.pids[1], resource.RLIMIT_FSIZE)
    resource.prlimit(job.pids[1], resource.RLIMIT_FSIZE, (2**17, before[1]))
    failed = job.hear("checkpoint.failed", since)
    assert "no part of 1 of 2 ranks (1)" in failed["reason"]
    resource.prlimit(job.pids[1], resource.RLIMIT_FSIZE, before)
    assert job.hear("checkpoint.saved", len(events(job.log())))["step"] > failed["step"]
    stopped(job, Exit.RESUMABLE_STOP)
    goes_on(jobs, tmp_path, storage, newest(storage), **wide)


def test_where_the_policy_is_to_stop_a_stale_mount_stops_the_run(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any]
) -> None:
    storage = mounted(Stale)
    job, _ = running(jobs, tmp_path, storage, on_failure="stop")
    storage.fail()
    assert job.codes() == [Exit.RESUMABLE_FAILURE] * 2
    assert any(each["event"] == "failed" and each["kind"] == "storage" for each in events(job.log()))
    storage.mend()
    goes_on(jobs, tmp_path, storage, newest(storage))


def test_slow_storage_holds_no_step_up_and_a_stop_waits_for_its_save(
    jobs: Jobs, tmp_path: Path, mounted: Callable[..., Any]
) -> None:
    storage = mounted(Handed, "--write-rate=20k")
    job = start(jobs, tmp_path, storage, stall_limit_s=60)
    saved = job.hear("checkpoint.saved")
    assert saved["seconds"] > 0.2
    assert tried(job, 0)
    stopped(job, Exit.RESUMABLE_STOP)
    assert not [each for each in events(job.log()) if each["event"] == "checkpoint.failed"]
    (stop,) = [each for each in events(job.log()) if each["event"] == "stop.agreed"]
    assert newest(storage) == stop["step"]


@pytest.mark.timeout(200)
def test_a_job_ends_though_the_kernel_cannot_end_its_processes(tmp_path: Path, mounted: Callable[..., Any]) -> None:
    """Their threads hang in calls that no signal ends. The launcher ends in its grace, with their code."""
    storage = mounted(Frozen)
    folder = storage.at / "saved"
    (tmp_path / "run.yaml").write_text(
        CONFIG.format(folder=folder, stall_limit_s=600, on_failure="go_on", grace_s=GRACE_S)
    )
    command = [sys.executable, "-m", "runtime.stops.launch", "--nproc-per-node=2", f"--shutdown-timeout={GRACE_S:.0f}"]
    log = tmp_path / "log"
    with log.open("wb") as out:  # and no pipe: whoever hangs would keep it open
        launcher = subprocess.Popen(
            [*storage.namespace.enter, *command, str(TINY), str(tmp_path / "run.yaml")],
            env=os.environ | {"PYTHONPATH": str(TINY.parents[2]), "OMP_NUM_THREADS": "1", "TINY_PAUSE_S": "0.05"},
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )
    try:
        wait_for(lambda: log.read_text().count("checkpoint.saved") > 2, "no save", 120)
        pids = {each["pid"] for each in events(log.read_text())}
        storage.fail()
        wait_for(lambda: "checkpoint.skipped" in log.read_text(), "no save is left out")
        launcher.terminate()
        assert launcher.wait(3 * GRACE_S) == Exit.RESUMABLE_FAILURE, log.read_text()[-3000:]
    finally:
        launcher.kill()
        launcher.wait()
    held = [pid for pid in pids if left(pid) is not None]
    assert held, "nothing was held: the test shows nothing"
    assert {left(pid) for pid in held} == {Exit.RESUMABLE_FAILURE}
    storage.mend()
    assert newest(storage) > 0
