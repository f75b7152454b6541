"""Real ranks that hang for real: each is looked at from outside, nothing of it is stopped, and the right rank is named.

Ranks of torch with gloo; each job has a name of its own, as other tests run ranks beside it.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from validation.diagnose.finding import Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.live import stacks
from validation.diagnose.live.collect import collect, local_job
from validation.diagnose.live.snapshot import Snapshot
from validation.diagnose.sources import SourceError

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from mounts import Namespace, Stalling

ROOT = Path(__file__).parents[2]
TRAINING = Path(__file__).with_name("hanging_training.py")
WORLD = 3
LIMIT_S = 120.0
"""Until all ranks are where they hang: torch is imported first, on a machine that may be busy."""

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a job's ranks, waits until they are at their step, and gives its name."""
    started: list[subprocess.Popen[bytes]] = []

    def starting(fault: str, folder: Path = tmp_path, argv: tuple[str, ...] = ()) -> str:
        job = f"live-{secrets.token_hex(4)}"
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.mkfifo(folder / "feed")
        for rank in range(WORLD):
            environment = {
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "SLURM_JOB_ID": job,
                "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
            }  # fmt: skip
            log = (folder / f"rank_{rank}.log").open("wb")
            command = argv or (str(TRAINING), fault, str(folder))
            started.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            log.close()
        until(
            lambda: all((folder / f"ready-{rank}").exists() for rank in range(WORLD)),
            lambda: "".join((folder / f"rank_{rank}.log").read_text()[-2000:] for rank in range(WORLD)),
        )
        stores.append(store)
        return job

    stores: list[dist.TCPStore] = []
    yield starting
    for each in started:
        for end in (os.killpg, os.kill):
            try:
                end(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        each.wait(30)
        assert each.stdin is not None
        each.stdin.close()


def until(true: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"not in {LIMIT_S:g} s: {why()}"
        time.sleep(0.02)


def looked(job: str, right: Callable[[Diagnosis], bool] = lambda _: True) -> tuple[Snapshot, Diagnosis]:
    """The job as it stands, once it is seen to stand so: ranks need their time to come where they hang.

    Without what this machine's kernel, links and other jobs do meanwhile, as other tests break those.
    """
    end = time.monotonic() + LIMIT_S
    while True:
        snapshot = collect(local_job(job)).model_copy(update={"kernel": (), "links": (), "gpus": (), "ras": None})
        found = read_job([], live=[snapshot])
        if right(found) or time.monotonic() > end:
            return snapshot, found


FAULTS = [
    ("stopped", "program.stopped", "certain"),
    ("loader", "slow.data", "likely"),
    ("mismatch", "collective.mismatch", "likely"),
    ("ended", "peer.lost", "likely"),
    ("debugger", "program.debugger", "certain"),
    ("lock", "program.lock", "likely"),
    ("fifo", "program.blocked", "likely"),
    ("loop", "program.loop", "likely"),
]


@pytest.mark.parametrize(("fault", "kind", "confidence"), FAULTS)
def test_the_rank_that_hangs_is_named(start: Start, fault: str, kind: str, confidence: str) -> None:
    job = start(fault)
    snapshot, found = looked(job, lambda found: found.root_cause.kind == kind)
    cause = found.root_cause
    assert (cause.kind, cause.rank, cause.confidence.value, cause.node) == (kind, 1, confidence, snapshot.node)
    others = next(each for each in found.standing if each.ranks == (0, 2))
    if fault != "ended":
        assert others.doing == "waits in a collective (all_reduce)"
        assert others.where.endswith(" all_sum")
        assert [each.ranks for each in found.standing] == [(1,), (0, 2)]


def test_a_rank_that_reads_from_a_mount_that_does_not_answer_is_named(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE, whose server is stopped: as on NFS, every call on it waits in the kernel."""
    if os.geteuid() or not Path("/dev/fuse").exists() or shutil.which("bindfs") is None:
        pytest.skip("mounts a folder by FUSE: as root, apt-get install bindfs")
    made = ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "sleep", "600"]
    with subprocess.Popen(made) as holder:
        mount = None
        try:
            namespace = Namespace(holder.pid)
            (tmp_path / "fuse").mkdir()
            mount = Stalling(namespace, tmp_path / "fuse")
            (mount.whole / "shard").write_bytes(b"x" * 100)
            mount.fail()
            monkeypatch.setenv("STALLED", str(namespace.seen(mount.at)))
            _, found = looked(start("storage"), lambda found: found.root_cause.kind == "storage.stale")
            cause = found.root_cause
            assert (cause.kind, cause.rank, cause.confidence.value) == ("storage.stale", 1, "likely")
            assert "rank 1 waits for FUSE" in cause.evidence[0].text
        finally:
            if mount is not None:
                mount.close()
            holder.kill()


def test_a_job_that_works_is_not_called_stuck_and_works_on_after_it_was_looked_at(start: Start, tmp_path: Path) -> None:
    job = start("none")
    snapshot, found = looked(job, lambda found: found.root_cause.kind == "progress.running")
    assert (found.root_cause.kind, found.root_cause.rank) == ("progress.running", None)
    assert {each.rank for each in snapshot.ranks} == {0, 1, 2}
    assert all(each.cpu_s for each in snapshot.ranks)
    until(lambda: collect(local_job(job), interval_s=0.5).ranks[0].moved is True)


def test_a_rank_under_a_debugger_is_told_so_and_not_disturbed(start: Start) -> None:
    job = start("none")
    pid = local_job(job)[1].pid
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACE, str(pid)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert tracer.stdout is not None
    said = tracer.stdout.readline()
    try:
        if "held" not in said:
            pytest.skip(f"this machine lets nobody trace: {said}")
        _, found = looked(job, lambda found: found.root_cause.kind == "program.debugger")
        assert (found.root_cause.kind, found.root_cause.rank) == ("program.debugger", 1)
    finally:
        tracer.kill()
        tracer.communicate()
    until(lambda: collect(local_job(job), interval_s=0.5).ranks[1].moved is True)


TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
ATTACH = 16
done = libc.ptrace(ATTACH, pid, None, None)
if done == 0:
    os.waitpid(pid, 0x40000000)
print("held" if done == 0 else os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.read()
"""


def test_of_several_jobs_one_must_be_chosen_and_of_none_it_says_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    one = start("none")
    two = start("none", tmp_path / "two")
    assert [each.rank for each in local_job(one)] == [0, 1, 2]
    with pytest.raises(SourceError, match=rf"several jobs run here: .*{min(one, two)} \(3 ranks\)"):
        local_job()
    with pytest.raises(SourceError, match="no rank of job 'another' runs here"):
        local_job("another")


def test_the_collector_is_a_command_that_prints_one_line(start: Start) -> None:
    job = start("stopped")
    until(lambda: any("State:\tT" in Path(f"/proc/{each.pid}/status").read_text() for each in local_job(job)))
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "validation.diagnose.live", "--job", job],
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    (line,) = ran.stdout.splitlines()
    snapshot = Snapshot.model_validate_json(line)
    assert [(each.rank, each.state) for each in snapshot.ranks] == [(0, "S"), (1, "T"), (2, "S")]
    assert any(each.startswith("NCCL's RAS: ") for each in snapshot.missed)


def test_one_without_a_rank_says_so(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from validation.diagnose.live import __main__ as command

    monkeypatch.setattr(sys, "argv", ["live", "--job", "no-such-job"])
    assert command.main() == 0
    snapshot = Snapshot.model_validate_json(capfd.readouterr().out)
    assert snapshot.ranks == ()
    assert snapshot.missed[0].startswith("ranks: no rank")


def test_where_memory_may_not_be_read_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text(
        "#!/bin/sh\necho 'Error: Failed to open process' >&2; echo 'Permission denied (os error 13)' >&2; exit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(stacks, "tool", lambda: str(fake))
    with pytest.raises(stacks.NoStack, match="not permitted · run it as the job's user"):
        stacks.stacks(os.getpid())
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(stacks.NoStack, match="has not ended in"):
        stacks.stacks(os.getpid(), limit_s=0.2)
    for answer in ("{}", "[1, null]", '[{"frames": [{"line": -1}, 3]}]', "x"):
        fake.write_text(f"#!/bin/sh\necho '{answer}'\n")
        try:
            told = str(stacks.stacks(os.getpid()))
        except stacks.NoStack as why:
            told = str(why)
        assert "not understood" in told or "main=True" not in told
    monkeypatch.setattr(stacks, "tool", lambda: None)
    with pytest.raises(stacks.NoStack, match="pip install py-spy"):
        stacks.stacks(os.getpid())


def test_a_lock_that_another_thread_holds_is_seen_in_this_process() -> None:
    """py-spy's own JSON, of a process whose main thread is known."""
    ready = threading.Event()
    other = threading.Thread(target=ready.wait, name="other", daemon=True)
    other.start()
    threads = stacks.stacks(os.getpid())
    ready.set()
    assert [each.main for each in threads][:1] == [True]
    assert "other" in {each.name for each in threads}
