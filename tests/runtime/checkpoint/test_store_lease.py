"""One job writes to a folder; a second is refused, and takes over when the first is gone."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import Namespace, WithoutLinks
from store_samples import found, place, save, write

from runtime.checkpoint import lease
from runtime.checkpoint.lease import HeldError, Lease, LeaseLostError, lives_here
from runtime.checkpoint.storage import NoLinksError, Storage
from runtime.checkpoint.tier import Tier
from runtime.exits import Exit
from runtime.failures.classify import classify

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from store_samples import place, save, write
from runtime.checkpoint.tier import Tier

tier = Tier(Path(sys.argv[1]), lease_s=float(sys.argv[2]))
for line in sys.stdin:
    try:
        save(tier, int(line), turn=int(line))
        print("done", flush=True)
    except Exception as wrong:
        print(type(wrong).__name__, flush=True)
tier.close()
"""


class Job:
    """A process that saves the steps it is told."""

    def __init__(self, folder: Path, lasts_s: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(lasts_s)],
            env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def save(self, step: int) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    started = Job(tmp_path / "checkpoints", 2.0)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.mark.timeout(120)
def test_a_second_job_is_refused_until_the_first_ends(tmp_path: Path, job: Job) -> None:
    assert job.save(1) == "done"
    with Tier(tmp_path / "checkpoints") as second:
        with pytest.raises(HeldError, match=f"process {job.process.pid} on "):
            save(second, 2)
        assert found(second, 1) == 1
        assert job.save(3) == "done"
        assert job.process.stdin
        job.process.stdin.close()
        job.process.wait(60)
        save(second, 4)
        assert second.steps() == (1, 3, 4)


@pytest.mark.timeout(120)
def test_a_job_that_was_killed_holds_nothing(tmp_path: Path, job: Job) -> None:
    assert job.save(1) == "done"
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait(60)
    told = []
    with Tier(tmp_path / "checkpoints", tell=lambda event, /, **_: told.append(event)) as second:
        save(second, 2)
    assert "checkpoint.lease.taken_over" in told


@pytest.mark.timeout(120)
def test_a_job_that_stood_still_while_another_took_over_must_not_commit(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is on another host, as far as it can see: it watches the beat."""
    assert job.save(1) == "done"
    os.kill(job.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(lease, "_boot", lambda: "another boot")
    with Tier(tmp_path / "checkpoints", lease_s=2.0) as second:
        save(second, 2)
        os.kill(job.process.pid, signal.SIGCONT)
        assert job.save(3) == "LeaseLostError"
        assert second.steps() == (1, 2)
        save(second, 4)


@pytest.mark.timeout(120)
def test_a_holder_on_another_host_that_lives_is_not_robbed(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job.save(1) == "done"
    monkeypatch.setattr(lease, "_boot", lambda: "another boot")
    with Tier(tmp_path / "checkpoints", lease_s=60.0) as second, pytest.raises(HeldError):
        save(second, 2)
    assert job.save(3) == "done"


def test_of_many_who_take_over_one_succeeds(tmp_path: Path) -> None:
    dead = lease.here().model_copy(update={"pid": 2**22 + 1})
    (tmp_path / "lease-00000007").write_text(dead.model_dump_json())
    leases = [Lease(Storage(30), tmp_path) for _ in range(8)]
    gate, outcomes = threading.Barrier(8), []

    def take(each: Lease) -> None:
        gate.wait(30)
        try:
            each.take()
            outcomes.append(True)
        except HeldError:
            outcomes.append(False)

    threads = [threading.Thread(target=take, args=(each,)) for each in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == [False] * 7 + [True]
    assert [path.name for path in tmp_path.iterdir()] == ["lease-00000008"]
    for each in leases:
        each.release()


def test_a_lease_that_ran_out_while_nobody_wanted_it_is_taken_anew(tmp_path: Path) -> None:
    own = Lease(Storage(30), tmp_path, lasts_s=3600)
    own.take()
    own._renewed_s -= 3601
    own.renew()
    assert [path.name for path in tmp_path.iterdir()] == ["lease-00000002"]
    own.renew()
    (tmp_path / "lease-00000003").write_text(lease.here().model_dump_json())
    with pytest.raises(LeaseLostError, match=f"held by process {os.getpid()}"):
        own.renew()
    own.release()
    assert json.loads((tmp_path / "lease-00000003").read_text())["released"] is False


def test_a_job_that_lost_its_lease_between_part_and_commit_commits_nothing(tmp_path: Path) -> None:
    with Tier(tmp_path) as tier:
        save(tier, 1)
        write(tier, 2)
        (tmp_path / "lease-00000009").write_text(lease.here().model_dump_json())
        with pytest.raises(LeaseLostError):
            tier.commit(2, place(0), 5)
        for change in (lambda: tier.remove(1), lambda: tier.quarantine(1, "x"), tier.sweep):
            with pytest.raises(LeaseLostError):
                change()
        assert tier.steps() == (1,)


def test_a_process_id_that_was_given_to_another_is_not_the_holder() -> None:
    assert lives_here(lease.here()) is True
    assert lives_here(lease.here().model_copy(update={"born": 1})) is False
    assert lives_here(lease.here().model_copy(update={"host": "elsewhere"})) is None
    assert lives_here(lease.here().model_copy(update={"boot": "before"})) is None


def test_without_hard_links_nothing_is_begun_and_it_says_so(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts a file system: needs root")
    with subprocess.Popen(["unshare", "--mount", "sleep", "600"]) as holder:
        try:
            storage = WithoutLinks(Namespace(holder.pid), tmp_path)
            folder = storage.namespace.seen(storage.at) / "run"
            with Tier(folder) as tier, pytest.raises(NoLinksError) as refused:
                save(tier, 1)
            what, where, advice = str(refused.value).split(" · ")
            assert what.startswith("no hard link can be made")
            assert where == str(folder)
            assert "NFS" in advice
            assert classify(refused.value).treatment.exit is Exit.FAILED
            assert not any(path.name.startswith("lease-") for path in folder.iterdir())
            storage.close()
        finally:
            holder.kill()


def test_a_link_whose_answer_was_lost_is_no_other_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS: the server makes the link, its answer is lost, and the repeated call finds the name taken."""
    real = os.link

    def repeated(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", repeated)
    own = Lease(Storage(30), tmp_path)
    own.take()
    assert own.held
    own.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"token": 5}', '{"token": "a", "host": "' + "h" * 5000 + '"}'])
def test_a_damaged_lease_does_not_lock_everybody_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "lease-00000003").write_text(text[:4000])
    own = Lease(Storage(30), tmp_path)
    own.take()
    assert own.held
    own.release()
