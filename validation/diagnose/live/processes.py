"""The ranks' processes on this machine, found by their environment in /proc, and what /proc says of them.

Only what the caller may read is seen. A process is a rank's by the environment that it was started with: ranks that a
program forks and names by itself (torch.multiprocessing.spawn) are not told from others.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from validation.diagnose.live.bounded import within
from validation.diagnose.live.snapshot import MOST_RANKS, Waits

PROC = Path("/proc")
LARGEST_ENVIRONMENT = 1 << 20
"""Bytes."""
ENVIRONMENT_S = 3.0
"""Seconds to read it: the memory of a process that is stuck while it maps some cannot be read."""
ENVIRONMENTS_S = 12.0
"""Of all that are stuck so; beyond it each is given HURRY_S."""
HURRY_S = 0.1
LARGEST_FILE = 1 << 16
TICKS = os.sysconf("SC_CLK_TCK")

_RANK = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
)
"""Variables of rank, world, local rank and local world: torchrun's, Open MPI's, MPICH's, srun's. The first that has a
rank counts: torchrun's agent is srun's task, and its ranks are torchrun's."""
_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*$")


@dataclass(frozen=True)
class Found:
    """A process that is a rank. `job` names it for people; `key` tells it from others on this machine."""

    pid: int
    rank: int
    world: int
    local_rank: int | None
    local_world: int | None
    job: str
    slurm_job: str
    parent: int
    by: int = 0
    """By which of the launchers' variables it was found."""

    @property
    def told(self) -> tuple[object, ...]:
        """What its children inherit where they are its own, and an agent's do not."""
        return self.by, self.rank, self.world, self.local_rank


@dataclass(frozen=True)
class Status:
    """Of a process or thread, as /proc has it. `cpu_s`: of all its threads since it started."""

    name: str
    state: str
    parent: int
    cpu_s: float
    started: datetime | None


def ranks_here(proc: Path = PROC, unread: list[int] | None = None) -> list[Found]:
    """All ranks of all jobs on this machine that the caller may look at, by job and rank.

    `unread` gets the processes of which it cannot be told, as they are stuck: they may be ranks, too.
    """
    own, left_s = _ancestors(proc), ENVIRONMENTS_S
    candidates: dict[int, Found] = {}
    pythons: set[int] = set()
    for folder in _numbered(proc):
        pid = int(folder.name)
        if pid in own:
            continue
        told = _told(folder, max(HURRY_S, min(ENVIRONMENT_S, left_s)))
        if told is None:
            left_s -= ENVIRONMENT_S
            if unread is not None:
                unread.append(pid)
            continue
        found = _rank_of(folder, pid, told)
        if found is not None:
            candidates[pid] = found
            if _is_python(folder):
                pythons.add(pid)
    tops: dict[tuple[str, int], list[Found]] = defaultdict(list)
    for each in _without_others(_without_agents(candidates)):
        tops[each.job, each.rank].append(each)
    chosen = [_top(members, pythons) for members in tops.values()]
    return sorted(chosen, key=lambda each: (each.job, each.rank))[: 4 * MOST_RANKS]


def _rank_of(folder: Path, pid: int, told: Mapping[str, str]) -> Found | None:
    for by, (rank, world, local, locals_) in enumerate(_RANK):
        number = _number(told.get(rank))
        if number is None:
            continue
        slurm = told.get("SLURM_JOB_ID", "")[:40]
        task, array = told.get("SLURM_ARRAY_TASK_ID"), told.get("SLURM_ARRAY_JOB_ID")
        run, meets = told.get("TORCHELASTIC_RUN_ID", ""), told.get("MASTER_PORT", "")
        job = f"{array}_{task}"[:40] if array and task else slurm
        job = job or (run if run not in ("", "none") else "") or (f"port-{meets}" if meets else "unnamed")
        status = status_of(folder)
        if status is None or status.state in ("Z", "X"):
            return None
        return Found(
            pid=pid,
            rank=number,
            world=max(_number(told.get(world)) or 1, number + 1),
            local_rank=_number(told.get(local)),
            local_world=_number(told.get(locals_)),
            job=job[:80],
            slurm_job=slurm,
            parent=status.parent,
            by=by,
        )
    return None


def _without_agents(candidates: Mapping[int, Found]) -> dict[int, Found]:
    """Without launchers that look like a rank themselves: below them are others, or the same by a better sign."""
    agents: set[int] = set()
    for each in candidates.values():
        above, steps = candidates.get(each.parent), 0
        while above is not None and steps < len(candidates):
            if above.told != each.told:
                agents.add(above.pid)
            above, steps = candidates.get(above.parent), steps + 1
    return {pid: each for pid, each in candidates.items() if pid not in agents}


def _without_others(candidates: Mapping[int, Found]) -> list[Found]:
    """Of each job only the largest set of ranks: beside it are its batch script, a shell in it, a small program."""
    best: dict[str, tuple[int, int]] = {}
    for each in candidates.values():
        size = (-each.by, each.world)
        best[each.job] = max(size, best.get(each.job, size))
    return [each for each in candidates.values() if (-each.by, each.world) == best[each.job]]


def _top(members: Sequence[Found], pythons: set[int]) -> Found:
    """Of a rank's processes (a shell around it, itself, workers that it started), the uppermost that is Python."""
    pids = {each.pid: each for each in members}

    def depth(each: Found) -> int:
        deep, at = 0, each
        while at.parent in pids and deep < len(pids):
            deep, at = deep + 1, pids[at.parent]
        return deep

    return min(members, key=lambda each: (each.pid not in pythons, depth(each), each.pid))


def status_of(folder: Path) -> Status | None:
    """None where the process has gone."""
    stat = text(folder / "stat")
    name, closed, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if not closed or len(fields) < 20:
        return None
    try:
        cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
        started = _boot_time(folder.parent) + int(fields[19]) / TICKS
        begun = datetime.fromtimestamp(started, UTC) if started > 0 else None
        return Status(name, fields[0], int(fields[1]), cpu_s, begun)
    except (ValueError, OverflowError, OSError):
        return None


def waits_of(folder: Path, pid: int) -> Waits | None:
    """What a process or thread sleeps in. None where it has gone."""
    status = status_of(folder)
    if status is None:
        return None
    return Waits(
        name=status.name, pid=pid, state=status.state, wchan=wchan(folder), kernel_stack=kernel_stack(folder)[0]
    )


def wchan(folder: Path) -> str:
    """The kernel's function that it sleeps in; empty where it runs or the kernel does not say."""
    told = text(folder / "wchan").strip()
    return "" if told == "0" else told


def kernel_stack(folder: Path) -> tuple[tuple[str, ...], str]:
    """Functions from the innermost, and why there are none: only root may read it."""
    try:
        raw = _read(folder / "stack")
    except OSError as wrong:
        return (), wrong.strerror or "not readable"
    return tuple(re.findall(r"(?m)^\[<[^>]*>\]\s+(\w+)", raw.decode("utf-8", "replace"))), ""


def blocked_threads(folder: Path) -> list[Waits]:
    """Threads of a process that cannot be interrupted; the main one is told by itself."""
    found = []
    for each in _numbered(folder / "task"):
        if each.name != folder.name and " D " in text(each / "stat")[-400:]:
            waits = waits_of(each, int(each.name))
            found += [waits] if waits and waits.state == "D" else []
    return found


def children(proc: Path, pids: Iterable[int]) -> dict[int, list[int]]:
    """The processes that each of these started and that are there."""
    wanted = set(pids)
    found: dict[int, list[int]] = {pid: [] for pid in wanted}
    for folder in _numbered(proc):
        status = status_of(folder)
        if status is not None and status.parent in wanted:
            found[status.parent].append(int(folder.name))
    return found


def moved_bytes(folder: Path) -> tuple[int, int] | None:
    """Bytes read and written by system calls. None where it may not be read."""
    fields = dict(re.findall(r"(?m)^(rchar|wchar): (\d+)$", text(folder / "io")))
    return (int(fields["rchar"]), int(fields["wchar"])) if len(fields) == 2 else None


def control_groups(folder: Path) -> set[str]:
    """Paths of the control groups that it is in: of version 2, and of version 1 that of memory."""
    rows = (each.split(":", 2) for each in text(folder / "cgroup").splitlines())
    return {row[2] for row in rows if len(row) == 3 and (not row[1] or "memory" in row[1].split(","))}


def traced_by(folder: Path) -> int:
    """The process that debugs this one; 0 none."""
    found = re.search(r"(?m)^TracerPid:\s+(\d+)$", text(folder / "status"))
    return int(found[1]) if found else 0


def text(path: Path) -> str:
    """A small file of /proc; empty where it cannot be read."""
    try:
        return _read(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(LARGEST_FILE) or b""


def environment(folder: Path) -> Mapping[str, str]:
    """What a process was started with; empty where it may not be read, or cannot be as the process is stuck."""
    return _told(folder, ENVIRONMENT_S) or {}


def _told(folder: Path, limit_s: float) -> Mapping[str, str] | None:
    """None where it is stuck."""
    raw = within(limit_s, lambda: _environment(folder), None)
    if raw is None:
        return None
    pairs = (each.partition(b"=") for each in raw.split(b"\0"))
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}


def _environment(folder: Path) -> bytes | None:
    try:
        with (folder / "environ").open("rb") as file:
            return file.read(LARGEST_ENVIRONMENT)
    except OSError:
        return b""


def _number(told: str | None) -> int | None:
    return int(told) if told and told.isascii() and told.isdecimal() and len(told) < 7 else None


def _is_python(folder: Path) -> bool:
    try:
        return bool(_PYTHON.search(str((folder / "exe").readlink())))
    except OSError:
        return _PYTHON.search(text(folder / "comm").strip()) is not None


def _ancestors(proc: Path) -> set[int]:
    """This process and those above it: srun's step that looks has the job's environment too."""
    found, pid = {os.getpid()}, os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        status = status_of(proc / str(pid))
        pid = status.parent if status else 0
    return found


def _numbered(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208 (names only)
    except OSError:
        return []


def _boot_time(proc: Path) -> float:
    """Seconds since the epoch; 0 where it is not known."""
    for folder in (proc, proc.parent, PROC):
        found = re.search(r"(?m)^btime (\d+)$", text(folder / "stat"))
        if found:
            return float(found[1])
    return 0.0
