"""A training that is killed again and again ends with the weights of one that was not, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_training.py")
ROOT = SCRIPT.parents[2]
STEPS, RANKS = 60, 4
MOST_S = 1.5
"""The latest instant after an attempt's start: most attempts are training by then, and few have ended."""
# torch 2.15's agent keeps one store for all restarts, without a prefix for each: workers then find the addresses of
# dead ones there, and may fail at init_process_group() for ever. With its own store each restart begins anew.
QUIET = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "GLOO_SOCKET_IFNAME": "lo",
}


def say(line: str) -> None:
    """For whoever looks into a failure: pytest shows it then."""
    sys.stdout.write(f"{line}\n")


def notes(run: Path, name: str) -> list[dict]:
    """What the ranks noted; nothing if they have not."""
    path = run / "notes" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def attempts(run: Path) -> int:
    """How many times the run was started."""
    return len(list(run.glob("notes/started.*")))


@contextmanager
def started(log: Path, *argv: str) -> Iterator[subprocess.Popen]:
    """A process in a session of its own, ended with all that it started."""
    with log.open("w") as out:
        process = subprocess.Popen(
            argv, env=os.environ | QUIET, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def parent(pid: int) -> int:
    """The process that started it; 0 where there is none such any more, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[1])


def until(what, process: subprocess.Popen, limit_s: float = 120.0):
    """The first answer that is not false, or none once the process has ended."""
    deadline = time.monotonic() + limit_s
    while process.poll() is None:
        if found := what():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError("nothing happens")
        time.sleep(0.01)
    return what() or None


def unstick(run: Path, attempt: int, agent: subprocess.Popen) -> None:
    """Ends a start in which the ranks do not find one another: torch's rendezvous, before the runtime has a part.

    Where they had found one another it is a failure, with every rank's stack.
    """
    ranks = notes(run, f"started.{attempt}")
    stacks = [
        subprocess.run(
            [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(each["pid"])],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout
        for each in ranks
    ]
    joined = len(notes(run, f"joined.{attempt}"))
    say(f"{run.name} attempt {attempt}: {joined} ranks have joined, and nothing happens\n" + "\n".join(stacks))
    assert joined < RANKS
    if parent(ranks[0]["pid"]) == agent.pid:
        os.kill(ranks[0]["pid"], signal.SIGKILL)


def kill_in_training(run: Path, victim: dict) -> bool:
    """Kills a rank, unless it has done its work: then it holds locks of multiprocessing, and torch's agent hangs."""
    try:
        os.kill(victim["pid"], signal.SIGSTOP)
    except ProcessLookupError:
        return False
    left = any(each["pid"] == victim["pid"] for each in notes(run, "left"))
    os.kill(victim["pid"], signal.SIGCONT if left else signal.SIGKILL)
    return not left


def killed(root: Path, agent: subprocess.Popen, kills: int, dice: random.Random) -> int:
    """Kills a random rank at a random instant of each attempt, so often. Returns how many attempts died of it."""
    until(lambda: len(notes(root / "run-0", "ended")) == RANKS, agent)
    done, seen, found = 0, set(), (root / "run-0", 0)
    while done < kills:

        def new() -> tuple[Path, int] | None:
            run = max(root.glob("run-*"), key=lambda path: int(path.name[4:]))
            attempt = attempts(run) - 1
            fresh = run.name != "run-0" and attempt >= 0 and (run, attempt) not in seen
            return (run, attempt) if fresh else None

        try:
            found = until(new, agent, 30)
        except TimeoutError:
            unstick(*found, agent)
            continue
        assert found, "the agent has ended"
        seen.add(found)
        run, attempt = found
        instant_s = dice.uniform(0, MOST_S)
        time.sleep(instant_s)
        victim = dice.choice(notes(run, f"started.{attempt}"))
        if parent(victim["pid"]) == agent.pid and kill_in_training(run, victim):
            done += 1
            say(f"{run.name} attempt {attempt}: rank {victim['rank']} killed {instant_s:.3f} s after the start")
    (root / "enough").touch()
    agent.wait(timeout=120)
    return done


def check(run: Path, reference: Path) -> int:
    """Asserts that a run is as good as the undisturbed one. Returns how many times it was resumed."""
    right = {rank: {each["step"]: each for each in notes(reference, f"steps.{rank}")} for rank in range(RANKS)}
    for rank in range(RANKS):
        for each in notes(run, f"steps.{rank}"):
            assert each == right[rank][each["step"]]
    resumed = notes(run, "resumed")
    for each in resumed:
        assert each["digest"] == right[each["rank"]][each["step"]]["digest"]
    by_attempt: dict[str, set[int]] = {}
    for each in resumed:
        by_attempt.setdefault(each["attempt"], set()).add(each["step"])
    assert all(len(steps) == 1 for steps in by_attempt.values()), "ranks resumed from different steps"
    # A checkpoint that the leader saw committed is never lost.
    order = {attempt: int(attempt.rpartition(".")[2]) for attempt in by_attempt}
    for attempt, (step,) in by_attempt.items():
        before = [c["step"] for c in notes(run, "committed") if int(c["attempt"].rpartition(".")[2]) < order[attempt]]
        assert step >= max(before, default=0)
    assert notes(run, "wrong") == []
    # A rank that had ended when another was killed ends twice: the last time counts.
    ended, wanted = ({each["rank"]: each for each in notes(of, "ended")} for of in (run, reference))
    assert ended == wanted
    return len(by_attempt)


def torture(root: Path, kills: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    say(f"seed {seed}")
    log = root / "log"
    with started(log, sys.executable, str(SCRIPT), str(root), str(STEPS), "--forked") as agent:
        try:
            assert killed(root, agent, kills, dice) == kills
        except BaseException:
            say(log.read_text()[-4000:])
            raise
        assert agent.returncode == 0, log.read_text()[-4000:]
    runs = sorted(root.glob("run-*"))
    resumes = sum(check(run, root / "run-0") for run in runs if run.name != "run-0")
    say(f"{kills} kills in {len(runs) - 1} runs, {resumes} resumes")
    assert resumes


@pytest.mark.timeout(280)
def test_twenty_kills_change_no_bit_of_the_result(tmp_path):
    torture(tmp_path, 20, seed=20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_kills_change_no_bit_of_the_result(tmp_path):
    torture(tmp_path, 200, seed=random.SystemRandom().randrange(1 << 32))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_workers_of_torchrun_itself_change_no_bit_of_the_result(tmp_path):
    """The command, whose workers start from nothing: slower, and so only a few kills."""
    dice = random.Random(5)  # noqa: S311
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command += ["--max-restarts=20", str(SCRIPT)]
    for name in ("whole", "killed"):
        (tmp_path / name / "notes").mkdir(parents=True)
    whole, run = tmp_path / "whole", tmp_path / "killed"
    with started(tmp_path / "log-whole", *command, str(whole), str(STEPS)) as agent:
        assert agent.wait(timeout=300) == 0, (tmp_path / "log-whole").read_text()[-4000:]
    span_s = (whole / "notes" / "ended").stat().st_mtime - (whole / "notes" / "started.0").stat().st_mtime
    with started(tmp_path / "log-killed", *command, str(run), str(STEPS)) as agent:
        for attempt in range(5):
            if not until(lambda attempt=attempt: len(notes(run, f"started.{attempt}")) == RANKS, agent, 300):
                break
            rank, instant_s = dice.randrange(RANKS), dice.uniform(0.3, 0.95) * span_s
            time.sleep(instant_s)
            for each in notes(run, f"started.{attempt}"):
                if each["rank"] == rank and parent(each["pid"]) == agent.pid:
                    os.kill(each["pid"], signal.SIGKILL)
                    say(f"attempt {attempt}: rank {rank} killed {instant_s:.1f} s after its start")
        assert agent.wait(timeout=300) == 0, (tmp_path / "log-killed").read_text()[-4000:]
    say(f"{check(run, whole)} resumes in {attempts(run)} attempts")
    assert attempts(run) > 1
