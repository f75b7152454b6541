"""Runs scripts as the ranks of a job, each in a fresh fork of a process that has imported torch already.

The server (this file as a program) is asked by lines of JSON, and answers `started` and `ended` by lines of JSON. It
serves each job's store as torchrun's agent does, at a port that the system chose.
"""

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from outcomes import events

ROOT = Path(__file__).parents[2]


@dataclass
class Job:
    """A job that was started. `logs`: what each rank wrote, to both streams."""

    jobs: "Jobs"
    number: int
    pids: list[int]
    logs: list[Path]

    def kill(self, rank: int, number: int = signal.SIGKILL, children: bool = False) -> None:
        """Sends a signal to one rank; with `children`, to the processes that it started too, as Slurm does."""
        pid = self.pids[rank]
        with suppress(ProcessLookupError):
            if children:
                for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    os.kill(int(each), number)
            os.kill(pid, number)

    def until(self, text: str, rank: int = 0, limit_s: float = 60.0, times: int = 1) -> None:
        """Waits until a rank has written a text so often."""
        end = time.monotonic() + limit_s
        while self.log(rank).count(text) < times:
            assert time.monotonic() < end, f"no {text!r} in {limit_s:g} s:\n{self.log(rank)[-3000:]}"
            assert self.number not in self.jobs.heard(), f"ended before {text!r}:\n{self.log(rank)[-3000:]}"
            time.sleep(0.01)

    def asleep(self, rank: int, limit_s: float = 60.0) -> None:
        """Waits until a rank's main thread sleeps in the kernel: as when it waits for another in a collective."""
        end, quiet = time.monotonic() + limit_s, 0
        while quiet < 3:
            assert time.monotonic() < end, f"awake for {limit_s:g} s:\n{self.log(rank)[-3000:]}"
            state = Path(f"/proc/{self.pids[rank]}/stat").read_text().rpartition(")")[2].split()[0]
            quiet = quiet + 1 if state == "S" else 0
            time.sleep(0.005)

    def log(self, rank: int = 0) -> str:
        """What a rank wrote so far."""
        return self.logs[rank].read_text(errors="replace")

    def hear(self, event: str, since: int = 0, rank: int = 0, limit_s: float = 60.0) -> dict[str, Any]:
        """Waits for an event that a rank tells after so many events; all of it."""
        end = time.monotonic() + limit_s
        while not (found := [each for each in events(self.log(rank))[since:] if each["event"] == event]):
            assert time.monotonic() < end, f"no {event} in {limit_s:g} s:\n{self.log(rank)[-3000:]}"
            assert self.number not in self.jobs.heard(), f"ended before {event}:\n{self.log(rank)[-3000:]}"
            time.sleep(0.01)
        return found[0]

    def codes(self, limit_s: float = 120.0) -> list[int]:
        """Waits for the ranks' exit codes, -n for one that signal n ended."""
        end = time.monotonic() + limit_s
        while self.number not in self.jobs.heard(0.05):
            if time.monotonic() > end:
                for rank in range(len(self.pids)):
                    self.kill(rank)
                raise AssertionError(
                    f"not ended in {limit_s:g} s:\n" + "\n".join(self.log(r)[-3000:] for r in range(len(self.pids)))
                )
        return self.jobs.ended[self.number]


@dataclass
class Jobs:
    """The server's client."""

    process: "subprocess.Popen[str]"
    ended: dict[int, list[int]] = field(default_factory=dict)
    begun: dict[int, list[int]] = field(default_factory=dict)

    def start(self, script: Path, *argv: str, folder: Path, world: int = 1, **env: str) -> Job:
        """Starts a script in `folder` as so many ranks."""
        number = len(self.begun)
        logs = [folder / f"job-{number}-rank-{rank}.log" for rank in range(world)]
        for each in logs:
            each.touch()
        asked = {"number": number, "argv": [str(script), *argv], "folder": str(folder), "env": env}
        self._in.write(json.dumps({**asked, "logs": [str(each) for each in logs]}) + "\n")
        self._in.flush()
        end = time.monotonic() + 200  # torch is imported first, on a machine that may be busy
        while number not in self.begun:
            assert time.monotonic() < end, "the server of jobs does not answer"
            self.heard(0.05)
        return Job(self, number, self.begun[number], logs)

    def run(self, script: Path, *argv: str, folder: Path, world: int = 1, **env: str) -> tuple[list[int], list[str]]:
        """The ranks' codes, and what each wrote."""
        job = self.start(script, *argv, folder=folder, world=world, **env)
        return job.codes(), [job.log(rank) for rank in range(world)]

    def heard(self, wait_s: float = 0.0) -> dict[int, list[int]]:
        """The codes of the jobs that have ended."""
        assert self.process.stdout
        while select.select([self.process.stdout], [], [], wait_s)[0]:
            line = self.process.stdout.readline()
            assert line, "the server of jobs has ended"
            told = json.loads(line)
            (self.begun if told["event"] == "started" else self.ended)[told["number"]] = told["ranks"]
            wait_s = 0.0
        return self.ended

    @property
    def _in(self) -> IO[str]:
        assert self.process.stdin
        return self.process.stdin


@contextmanager
def serving(*by: str) -> Iterator[Jobs]:
    """Starts the server, by a command that becomes it where one is given, and ends it with all that it started."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    process = subprocess.Popen(
        [*by, sys.executable, "-u", __file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1,
    )  # fmt: skip
    try:
        yield Jobs(process)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait(30)


def _serve() -> None:
    import torch
    import torch._dynamo  # an optimizer imports it when it is made, which takes seconds
    import torch.distributed as dist

    import runtime.connect
    import runtime.run  # noqa: F401

    torch.set_num_threads(1)
    ranks: dict[int, tuple[int, int]] = {}
    codes: dict[int, dict[int, int]] = {}
    sizes: dict[int, int] = {}
    stores: dict[int, Any] = {}
    open_ = True
    while open_ or ranks:
        if open_ and select.select([0], [], [], 0.01)[0]:
            line = _line()
            if not line:
                open_ = False
                for pid in ranks:
                    os.kill(pid, signal.SIGKILL)
                continue
            asked = json.loads(line)
            number, world = asked["number"], len(asked["logs"])
            environment = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": str(number)}
            if world > 1:
                stores[number] = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(stores[number].port)}
                environment |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
            started = []
            for rank, log in enumerate(asked["logs"]):
                own = asked["env"]
                if world > 1:
                    own = environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | own
                if (pid := os.fork()) == 0:
                    _rank(asked["argv"], asked["folder"], Path(log), own)
                ranks[pid] = (number, rank)
                started.append(pid)
            sizes[number], codes[number] = world, {}
            _tell("started", number, started)
        for pid in list(ranks):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                number, rank = ranks.pop(pid)
                codes[number][rank] = os.waitstatus_to_exitcode(status)
                if len(codes[number]) == sizes[number] and open_:
                    stores.pop(number, None)
                    _tell("ended", number, [codes[number][each] for each in range(sizes[number])])


def _line() -> str:
    found = b""
    while not found.endswith(b"\n"):
        if not (each := os.read(0, 1)):
            return ""
        found += each
    return found.decode()


def _tell(event: str, number: int, ranks: Sequence[int]) -> None:
    sys.stdout.write(json.dumps({"event": event, "number": number, "ranks": list(ranks)}) + "\n")
    sys.stdout.flush()


def _rank(argv: list[str], folder: str, log: Path, environment: dict[str, str]) -> None:
    """In the fork: the script, as the interpreter would run it."""
    code = 70
    # Whoever started the tests may ignore it: a shell does for what it runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with log.open("a") as file:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv, sys.path[0] = argv, str(Path(argv[0]).parent)
        runpy.run_path(argv[0], run_name="__main__")
        code = 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    import atexit
    import threading

    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    _serve()
