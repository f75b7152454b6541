"""Agents of torchrun leave and join: the run goes on with those who are there, as if nobody had come or gone.

Real agents, each started by the command that docs/training-elastic.md shows, with shorter times.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import Jobs
from test_batch import SCRIPT, came_to, fed, made, told

from runtime.exits import Exit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training-elastic.md"
HERE = {"--nproc-per-node": "2", "--nnodes": "1:2"}
MEETING = "is_host=0,join_timeout=60,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=10"
STEPS = 600


def shown(module: str) -> list[str]:
    """The arguments of the command that the page shows."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (words,) = [
        found for each in blocks if (found := shlex.split(each.replace("\\\n", " ")))[:3] == ["python", "-m", module]
    ]
    return words[3:]


def arguments(endpoint: str, **changes: str) -> list[str]:
    """The page's options, with values for one machine that is busy."""
    words = shown("runtime.stops.launch")
    assert words.pop() == "train.py"
    options = dict(zip(words[::2], words[1::2], strict=True))
    known = {each.partition("=")[0] for each in options["--rdzv-conf"].split(",")}
    here = HERE | {"--rdzv-endpoint": endpoint, "--rdzv-conf": MEETING}
    here |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    assert here.keys() <= options.keys()
    assert {each.partition("=")[0] for each in here["--rdzv-conf"].split(",")} == known
    return [word for pair in (options | here).items() for word in pair]


def processes() -> dict[int, int]:
    """Each process's parent; zombies are none."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                found[int(path.parent.name)] = int(parent)
    return found


@dataclass
class Agent:
    """An agent that was started, with its log, in which its workers write too."""

    process: "subprocess.Popen[bytes]"
    out: Path

    @property
    def log(self) -> str:
        return self.out.read_text(errors="replace")

    @property
    def workers(self) -> list[int]:
        return [pid for pid, parent in processes().items() if parent == self.process.pid]

    def kill(self) -> None:
        """As a node that is lost."""
        workers = self.workers
        for each in (self.process.pid, *workers):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.process.wait()

    def until(self, event: str, since: int = 0, limit_s: float = 100.0, **fields: Any) -> dict[str, Any]:
        """Waits until its workers tell an event with these fields; the first since so many characters of its log."""
        end = time.monotonic() + limit_s
        while True:
            ended = self.process.poll() is not None
            for each in told(self.log[since:], event):
                if fields.items() <= each.items():
                    return each
            assert not ended, f"ended with {self.process.returncode} before {event} {fields}:\n{self.log[-6000:]}"
            assert time.monotonic() < end, f"no {event} {fields} in {limit_s:g} s:\n{self.log[-6000:]}"
            time.sleep(0.05)

    def ended(self, limit_s: float = 100.0) -> int:
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended in {limit_s:g} s:\n{self.log[-6000:]}") from None


@dataclass
class Cluster:
    """Agents on this machine that meet at one place."""

    folder: Path
    endpoint: str
    agents: list[Agent]
    left: ExitStack

    def start(self, module: str = "runtime.stops.launch", **changes: str) -> Agent:
        number = len(self.agents)
        argv = [*arguments(self.endpoint, **changes), "--local-addr", "127.0.0.1", str(SCRIPT), "run.yaml"]
        process = begun([sys.executable, "-m", module, *argv], self.folder, self.folder / f"agent-{number}.log")
        found = Agent(process, self.folder / f"agent-{number}.log")
        self.left.callback(found.kill)
        self.agents.append(found)
        return found


def begun(argv: list[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
    quiet = {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "GLOO_SOCKET_IFNAME": "lo",
        "WANDB_MODE": "disabled",
    }
    environment = os.environ | quiet | {"PYTHONPATH": str(ROOT), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(argv, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)


@contextmanager
def meeting(folder: Path) -> Iterator[str]:
    """The meeting place of the page, at a free port; its address."""
    assert shown("runtime.stops.meet") == ["10.0.0.1:50000"]
    log = folder / "meet.log"
    process = begun([sys.executable, "-m", "runtime.stops.meet", "127.0.0.1:0"], folder, log)
    try:
        end = time.monotonic() + 60
        while not (found := re.match(r"agents meet at (\S+)\n", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield found[1]
        process.terminate()
        assert process.wait(30) == Exit.DONE, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = made(tmp_path / "run", STEPS, quick=False)
    with meeting(folder) as endpoint, ExitStack() as left:
        yield Cluster(folder, endpoint, [], left)


Outcome = tuple[str, dict[int, list[int]]]
"""What a run comes to, and the samples of each of its steps."""


@pytest.fixture
def whole(jobs: Jobs, tmp_path: Path) -> Outcome:
    """What two ranks that nothing happens to come to, each with two micro-batches a step."""
    folder = made(tmp_path / "whole", STEPS)
    codes, logs = jobs.run(SCRIPT, "run.yaml", folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    return came_to(logs[0]), fed(folder)


def saved(*agents: Agent) -> int:
    """The newest step that is known to be saved."""
    return max((int(each["step"]) for agent in agents for each in told(agent.log, "checkpoint.saved")), default=0)


def finished(cluster: Cluster, whole: Outcome, *agents: Agent) -> None:
    """Ends the run soon, and compares it with the one that nothing happened to."""
    (cluster.folder / "quick").touch()
    for each in agents:
        assert each.ended() == Exit.DONE, each.log[-6000:]
        assert came_to(each.log) == whole[0]
    assert fed(cluster.folder) == whole[1]


def lost(cluster: Cluster, ranks: int) -> Agent:
    """Two agents of so many ranks each; the first is lost, with the rank that leads, and the other goes on."""
    first, second = (cluster.start(nproc_per_node=str(ranks)) for _ in range(2))
    began = second.until("run.began", world=2 * ranks)
    first.until("checkpoint.saved", since=len(first.log))
    first.kill()
    before = saved(first)
    again = second.until("run.began", since=len(second.log), world=ranks)
    assert again["step"] >= before > 0
    assert again["batch"] == began["batch"] == 8
    assert again["accumulate"] == 2 * began["accumulate"]
    return second


def test_the_others_go_on_when_a_node_is_lost(cluster: Cluster, jobs: Jobs, tmp_path: Path) -> None:
    """One rank and another: alone, it adds the two micro-batches up that were one on each."""
    config = cluster.folder / "run.yaml"
    config.write_text(config.read_text().replace("micro: 2", "micro: 4").replace(f"steps: {STEPS}", "steps: 200"))
    folder = made(tmp_path / "whole", steps=200)
    codes, logs = jobs.run(SCRIPT, str(config), folder=folder, world=2)
    assert codes == [Exit.DONE] * 2, logs[0][-3000:]
    finished(cluster, (came_to(logs[0]), fed(folder)), lost(cluster, ranks=1))


@pytest.mark.soak
def test_the_others_go_on_when_a_node_of_several_ranks_is_lost(cluster: Cluster, whole: Outcome) -> None:
    finished(cluster, whole, lost(cluster, ranks=2))


@pytest.mark.soak
def test_nodes_that_are_taken_away_and_that_join_cost_no_step(cluster: Cluster, whole: Outcome) -> None:
    """Nor one of the failures that an agent goes on after: it is given none."""
    first, second = cluster.start(max_restarts="0"), cluster.start(max_restarts="0")
    second.until("run.began", world=4)
    then = len(second.log)
    first.process.terminate()
    stop = second.until("stop.agreed", since=then)
    assert stop["reasons"] == ["SIGTERM"]
    assert first.ended() == Exit.RESUMABLE_STOP, first.log[-6000:]
    assert second.until("run.began", since=then, world=2)["step"] == stop["step"]
    then = len(second.log)
    third = cluster.start(max_restarts="0")
    again = third.until("run.began", world=4)
    grown = second.until("stop.agreed", since=then)
    assert again["step"] == grown["step"] > stop["step"]
    finished(cluster, whole, second, third)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("module", ["runtime.stops.launch", "torch.distributed.run"])
def test_nodes_are_lost_and_join_again_and_again(cluster: Cluster, whole: Outcome, module: str) -> None:
    """Each time another agent stays: starts are counted differently by agents of different age."""
    old = cluster.start(module)
    for _ in range(2):
        new = cluster.start(module)
        began = new.until("run.began", world=4)
        old.until("checkpoint.saved", since=len(old.log))
        old.kill()
        before = saved(old, new)
        again = new.until("run.began", since=len(new.log), world=2)
        assert again["step"] >= before > began["step"]
        old = new
    finished(cluster, whole, old)


@pytest.mark.soak
def test_fewer_nodes_than_the_least_end_with_the_code_that_has_the_job_started_again(cluster: Cluster) -> None:
    conf = MEETING.replace("join_timeout=60", "join_timeout=20")
    first, second = (cluster.start(nnodes="2:3", rdzv_conf=conf) for _ in range(2))
    second.until("checkpoint.saved")
    first.kill()
    assert second.ended() == Exit.RESUMABLE_FAILURE
    assert "the agents did not meet: RendezvousTimeoutError" in second.log
