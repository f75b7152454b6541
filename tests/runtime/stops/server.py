"""Runs jobs of forked ranks: torch is imported once, and each case starts with a fresh fork that has done nothing yet.

A case is a line of JSON on standard input; the answer a line on standard output.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rank import Job, train

LIMIT_S = 40.0
"""For a job; ranks that are still there then are killed, which the answer shows."""


class Ranks:
    """The processes of one job, and a pipe in each direction to each."""

    def __init__(self, job: Job, store: str) -> None:
        self.job = job
        self.pids: list[int] = []
        self.told: list[int] = []
        self.answer: list[int] = []
        self.codes: dict[int, int] = {}
        for rank in range(job.world):
            told, tell = os.pipe()
            hear, answer = os.pipe()
            pid = os.fork()
            if pid == 0:
                for each in (told, answer, *self.told, *self.answer):
                    os.close(each)
                _child(job, rank, tell, hear, store)
            os.close(tell)
            os.close(hear)
            self.pids.append(pid)
            self.told.append(told)
            self.answer.append(answer)
        self.until = time.monotonic() + LIMIT_S

    def wait_for(self, rank: int) -> str:
        """The phase that the rank tells it is in; empty if it ended before."""
        return os.read(self.told[rank], 64).decode()

    def asleep(self, rank: int) -> None:
        """Waits until the rank's main thread sleeps in the kernel: it has gone into the collective."""
        stat = Path(f"/proc/{self.pids[rank]}/stat")
        quiet = 0
        while quiet < 3 and time.monotonic() < self.until:
            state = stat.read_text().rpartition(")")[2].split()[0]
            quiet = quiet + 1 if state == "S" else 0
            time.sleep(0.005)

    def go(self) -> None:
        """Lets all held ranks go on."""
        for each in self.answer:
            with contextlib.suppress(BrokenPipeError):
                os.write(each, b"g")

    def kill(self, rank: int, number: int, everywhere: bool = False) -> None:
        """To the rank's process, or to its children too, as Slurm and a terminal do."""
        children = Path(f"/proc/{self.pids[rank]}/task/{self.pids[rank]}/children")
        pids = [int(each) for each in children.read_text().split()] if everywhere else []
        for pid in (*pids, self.pids[rank]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def ended(self) -> list[int]:
        """The ranks' codes, -n for one that signal n ended."""
        while len(self.codes) < self.job.world:
            for rank, pid in enumerate(self.pids):
                if rank not in self.codes and (found := os.waitpid(pid, os.WNOHANG))[0]:
                    self.codes[rank] = os.waitstatus_to_exitcode(found[1])
            if time.monotonic() > self.until:
                for rank in set(range(self.job.world)) - set(self.codes):
                    self.kill(rank, signal.SIGKILL)
            time.sleep(0.005)
        for each in (*self.told, *self.answer):
            os.close(each)
        return [self.codes[rank] for rank in range(self.job.world)]


def _child(job: Job, rank: int, told: int, answer: int, store: str) -> None:
    with (job.folder / f"log.{rank}").open("a") as log:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        train(job, rank, told, answer, store)
    except SystemExit:
        # As at the end of a script: what is registered with atexit runs, and ends the process.
        import atexit

        atexit._run_exitfuncs()
        os._exit(99)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(98)


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Starts a job, sends its signals in its phase, waits for its end, then runs it again to the end.

    `signals`: pairs of rank and number, in order.
    """
    folder = Path(case["folder"])
    signals = [(int(rank), int(number)) for rank, number in case["signals"]]
    hold = case["phase"]
    world = case.get("world", 2)
    # In a collective all but the last rank wait for the last, which is held before it.
    held = tuple(range(world - 1 if hold == "collective" else world if hold else 0))
    job = Job(folder, world, hold, held, case.get("workers", ""), case.get("config", {}))
    ranks = Ranks(job, "store.1")
    for rank in held:
        ranks.wait_for(rank)
    if hold == "collective":
        ranks.wait_for(world - 1)
        for rank in held:
            ranks.asleep(rank)
    older = _state(folder)
    for rank, number in signals:
        ranks.kill(rank, number, bool(job.workers))
    ranks.go()
    codes = ranks.ended()
    stopped = _state(folder)
    again = Ranks(Job(folder, world), "store.2").ended() if signals else []
    return {"codes": codes, "older": older, "stopped": stopped, "again": again, "final": _state(folder)}


def _state(folder: Path) -> dict[str, Any] | None:
    path = folder / "state.json"
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
