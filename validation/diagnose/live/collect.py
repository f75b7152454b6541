"""A snapshot of this node: everything is read twice with an interval between, each thing with a time limit.

Nothing of the job is changed or stopped, and no signal is sent. What could not be read is in `missed`, with why.
"""

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Semaphore
from threading import Thread as Worker
from typing import TypeVar

from validation.diagnose.live import gpus, links, processes, ras_client, stacks
from validation.diagnose.live.kernel_log import NoLog, kernel_log, of_job
from validation.diagnose.live.processes import Found
from validation.diagnose.live.ras import RasError
from validation.diagnose.live.snapshot import (
    MOST_LINKS,
    MOST_LOCAL,
    MOST_RANKS,
    MOST_WORLD,
    Frame,
    Gpu,
    Rank,
    Snapshot,
    Thread,
    Waits,
)
from validation.diagnose.live.stand import in_collective
from validation.diagnose.live.steps import Step, step_of
from validation.diagnose.sources import SourceError
from validation.node.measure import Unmeasurable
from validation.node.nvml import Nvml

INTERVAL_S = 3.0
SAMPLES = 8
"""Of a rank's stack within the interval; fewer where it is seen to move."""
LIMIT_S = 40.0
"""Of all on this node."""
WIDTH = 8
"""Stacks that are read at once."""

T = TypeVar("T")


@dataclass
class _Seen:
    """Of one rank while it is looked at."""

    found: Found
    folder: Path
    cpu_s: float | None = None
    bytes: tuple[int, int] | None = None
    step: Step | None = None
    samples: list[tuple[Thread, ...]] = field(default_factory=list)
    wrong: str = ""

    @property
    def moved(self) -> bool:
        """Whether its main thread was seen at two places."""
        return len({_main(each) for each in self.samples}) > 1


def local_job(job: str = "", proc: Path = processes.PROC, unread: list[int] | None = None) -> list[Found]:
    """The ranks of one job on this machine. Raises SourceError: there is none, or which of several is meant.

    `unread` gets processes that are stuck, so that nobody knows whether they are ranks.
    """
    here = processes.ranks_here(proc, unread)
    if not here and unread:
        raise SourceError(_stuck(unread))
    if not here:
        raise SourceError(
            "no rank runs here that you may look at · run it on a node of the job as the job's user or root; give "
            "--job where Slurm is; ranks are found by RANK or SLURM_PROCID in the environment they were started with"
        )
    jobs = Counter(each.job for each in here)
    mine = [each for each in here if job in ("", each.job, each.slurm_job)]
    shown = ", ".join(f"{name} ({count} ranks)" for name, count in sorted(jobs.items())[:8])
    if not mine:
        raise SourceError(f"no rank of job {job!r} runs here, but of {shown} · give --job with one of them")
    if len({each.job for each in mine}) > 1:
        raise SourceError(f"ranks of several jobs run here: {shown} · give --job with one of them")
    return mine


def collect(
    ranks: Sequence[Found],
    native: bool = False,
    interval_s: float = INTERVAL_S,
    proc: Path = processes.PROC,
    nvml: Nvml | None = None,
    unread: Sequence[int] = (),
) -> Snapshot:
    """The snapshot of these ranks and of this machine. Never raises for what cannot be read.

    `unread`: processes of which `local_job` could not tell whether they are ranks.
    """
    node, missed = hostname(), [] if ranks else ["ranks: none of the job runs here"]
    begun = time.monotonic()
    if unread:
        missed.append(_stuck(unread))
    if beyond := max(0, len(ranks) - MOST_RANKS):
        missed.append(f"ranks: {beyond} of {len(ranks)} were not looked at · at most {MOST_RANKS} of a node are")
    ranks = ranks[:MOST_RANKS]
    beside = _Beside(nvml or Nvml(), node, ranks, proc, begun + LIMIT_S)
    before, segments = links.sample(), links.segments()
    seen = [_Seen(each, proc / str(each.pid)) for each in ranks]
    with ThreadPoolExecutor(max(1, len(seen))) as pool:  # all at the same time: they are compared
        list(pool.map(_first, seen))
        looked_s, width = time.monotonic(), Semaphore(WIDTH)
        list(pool.map(lambda each: _watch(each, native, interval_s, begun + LIMIT_S, width), seen))
        rest = max(0.0, looked_s + interval_s - time.monotonic())
        time.sleep(rest if seen else 0.0)
        took_s = time.monotonic() - looked_s
        mine = [each for each in pool.map(lambda each: _rank(each, missed), seen) if each is not None]
    below = processes.children(proc, {each.found.pid for each in seen} | {each.found.parent for each in seen})
    mine = [each.model_copy(update={"children": _waits(proc, below.get(each.pid, ()))}) for each in mine]
    parents = {each.found.parent for each in seen}
    ended = [each for pid in sorted(parents) for each in _waits(proc, below.get(pid, ())) if each.state == "Z"]
    missed += [f"rank {each.found.rank}: stacks: {each.wrong}" for each in seen if each.wrong]
    found = beside.wait(missed)
    return Snapshot(
        node=node,
        job=ranks[0].job if ranks else "",
        time=datetime.now(UTC),
        interval_s=round(took_s, 3),
        ranks=tuple(mine),
        ended=tuple(ended),
        links=(*links.again(segments, links.segments()), *links.between(before, links.sample()))[:MOST_LINKS],
        missed=tuple(missed),
        unread=len(unread) + beyond,
        **found,
    )


def _stuck(unread: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(unread)[:8])) + (", …" if len(unread) > 8 else "")
    return (
        f"ranks: {len(unread)} processes are stuck in the kernel, so that it cannot be told whose they are: {shown} · "
        "look at their /proc/PID/stack as root: that alone may be the cause"
    )


def hostname() -> str:
    """This node's, as a snapshot may have it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")[:63] or "localhost"


def _first(each: _Seen) -> None:
    """The first reading."""
    status = processes.status_of(each.folder)
    each.cpu_s = status.cpu_s if status else None
    each.bytes = processes.moved_bytes(each.folder)
    each.step = step_of(each.folder)


def _watch(each: _Seen, native: bool, interval_s: float, end: float, width: Semaphore) -> None:
    """Its stack, several times over the interval; twice where it is stopped for each."""
    begun = time.monotonic()
    for number in (0, SAMPLES - 1) if native else range(SAMPLES):
        at = begun + interval_s * number / (SAMPLES - 1)
        time.sleep(max(0.0, min(at, end) - time.monotonic()))
        if time.monotonic() >= end:
            each.wrong = each.wrong or "no time was left"
            return
        try:
            with width:
                each.samples.append(stacks.stacks(each.found.pid, native=native))
            each.wrong = ""
        except stacks.NoStack as why:
            if not each.samples:
                each.wrong = str(why)
            if not processes.status_of(each.folder) or "not permitted" in str(why) or "not installed" in str(why):
                return


def _rank(each: _Seen, missed: list[str]) -> Rank | None:
    """The second reading. None where it has ended meanwhile."""
    status = processes.status_of(each.folder)
    if status is None:
        missed.append(f"rank {each.found.rank}: process {each.found.pid} ended while it was looked at")
        return None
    step, bytes_ = step_of(each.folder), processes.moved_bytes(each.folder)
    stack, _ = processes.kernel_stack(each.folder)
    same = step is not None and each.step is not None and step.exact == each.step.exact
    if each.found.world >= MOST_WORLD or (each.found.local_world or 1) >= MOST_LOCAL:
        missed.append(f"rank {each.found.rank}: it says that it is of {each.found.world} ranks")
        return None
    return Rank(
        rank=each.found.rank,
        world=each.found.world,
        local_rank=each.found.local_rank,
        local_world=each.found.local_world or None,
        pid=each.found.pid,
        started=status.started,
        state=status.state,
        wchan=processes.wchan(each.folder),
        kernel_stack=stack,
        traced_by=processes.traced_by(each.folder),
        cpu_s=max(0.0, status.cpu_s - each.cpu_s) if each.cpu_s is not None else None,
        threads=each.samples[-1] if each.samples else (),
        moved=each.moved if len(each.samples) > 1 else None,
        left=_left(each.samples),
        looks=len(each.samples),
        waits=sum(in_collective(_main(each)) for each in each.samples),
        step=step.number if step else None,
        step_before=each.step.number if same and each.step else None,
        exact_step=bool(step and step.exact),
        read_bytes=max(0, bytes_[0] - each.bytes[0]) if bytes_ and each.bytes else None,
        written_bytes=max(0, bytes_[1] - each.bytes[1]) if bytes_ and each.bytes else None,
        blocked=tuple(processes.blocked_threads(each.folder)),
    )


def _main(threads: Iterable[Thread]) -> tuple[Frame, ...]:
    return next((each.frames for each in threads if each.main), ())


def _left(samples: Sequence[tuple[Thread, ...]]) -> bool:
    """Whether it was in a collective, and later outside of it or in another."""
    mains = [_main(each) for each in samples]
    return any(in_collective(one) and two and one != two for one, two in pairwise(mains))


def _waits(proc: Path, pids: Iterable[int]) -> tuple[Waits, ...]:
    return tuple(each for pid in sorted(pids) if (each := processes.waits_of(proc / str(pid), pid)) is not None)


def _ras_address(ranks: Sequence[Found], proc: Path) -> tuple[str, int]:
    for each in ranks[:1]:
        return ras_client.address(processes.environment(proc / str(each.pid)))
    return ras_client.address({})


class _Beside:
    """What is asked while ranks are watched; each in a thread that is left behind where it hangs."""

    def __init__(self, nvml: Nvml, node: str, ranks: Sequence[Found], proc: Path, end: float) -> None:
        self._end = end
        ras = _ras_address(ranks, proc)
        statuses = [processes.status_of(proc / str(each.pid)) for each in ranks]
        groups = {group for each in ranks for group in processes.control_groups(proc / str(each.pid))}
        started = min((each.started for each in statuses if each and each.started), default=None)
        self._answers: dict[str, object] = {}
        self._wrong: dict[str, str] = {}
        self._workers = {
            name: Worker(target=self._ask, args=(name, read), daemon=True)
            for name, read in (
                ("gpus", lambda: gpus.gpus(nvml)),
                ("ras", lambda: ras_client.ask(ras)),
                ("kernel", lambda: tuple(of_job(kernel_log(node, started), groups))),
            )
        }
        for each in self._workers.values():
            each.start()

    def _ask(self, name: str, read: Callable[[], object]) -> None:
        try:
            self._answers[name] = read()
        except (Unmeasurable, RasError, NoLog, RuntimeError, OSError, ValueError) as why:
            self._wrong[name] = f"{why}"
            if name == "gpus" and "lost" in str(why).lower():  # NVML gives no handle of it, and so of none
                self._answers[name] = (Gpu(name="gpu-?", wrong=str(why)),)

    def wait(self, missed: list[str]) -> Mapping[str, object]:
        """The fields of a snapshot; what is missing is added to `missed`."""
        words = {"gpus": "GPUs", "ras": "NCCL's RAS", "kernel": "kernel log"}
        for name, worker in self._workers.items():
            worker.join(max(0.1, self._end - time.monotonic()))
            if worker.is_alive():
                self._wrong[name] = "no answer in time · it hangs: that alone may be the cause"
            if name in self._wrong:
                missed.append(f"{words[name]}: {self._wrong[name]}")
        return dict(self._answers)
