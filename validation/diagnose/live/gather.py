"""Snapshots of all nodes of a Slurm job: one small step on each, as the job's user, beside the ranks that run.

A step a node rather than one for all: a node that hangs is then named, and holds up no other.
"""

import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from typing import NamedTuple

from validation.diagnose.live.bounded import run
from validation.diagnose.live.snapshot import LARGEST, Snapshot, parse
from validation.diagnose.slurm import parts_of
from validation.diagnose.sources import SourceError

LIMIT_S = 60.0
"""Seconds for one node: its collector ends itself sooner."""
WHOLE_S = 300.0
"""Seconds for all nodes: where many hang, those that were not reached by then are named."""
SLURM_S = 30.0
"""Seconds for an answer of Slurm's controller."""
WIDTH = 16
"""Nodes that are asked at once: each is a step that the controller starts."""
MOST_NODES = 4096
START = b'{"kind":"muster.snapshot"'
"""How a snapshot begins in its line."""
MOST_ANSWERS = 4
"""Of a node, that are looked at."""

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

Progress = Callable[[int, int], None]
"""Is told how many nodes of how many have answered or were given up."""


def gather(
    job: str,
    native: bool = False,
    limit_s: float = LIMIT_S,
    progress: Progress = lambda _done, _of: None,
) -> list[Snapshot]:
    """A snapshot of each node of a job, also of those that do not answer, which say so.

    Raises SourceError: no such job, it does not run, Slurm is not here, or no node answers.
    """
    nodes, uid = place_of(job)
    rights = as_user(uid) if os.geteuid() == 0 and uid else ()
    made: dict[str, Snapshot] = {}
    progress(0, len(nodes))
    end = time.monotonic() + WHOLE_S

    def asked(node: str) -> Snapshot:
        left_s = end - time.monotonic()
        if left_s <= 0:
            return _silent(job, node, f"not asked: other nodes took {WHOLE_S:g} s")
        return ask(job, node, native, min(limit_s, left_s), rights)

    with ThreadPoolExecutor(WIDTH) as pool:
        jobs = {pool.submit(asked, node): node for node in nodes}
        for number, each in enumerate(as_completed(jobs), 1):
            made[jobs[each]] = each.result()
            progress(number, len(nodes))
    if not any(each.answered for each in made.values()):
        first = next(iter(made.values())).missed[0]
        raise SourceError(
            f"job {job}: none of {len(nodes)} nodes answers: {first} · run it as the job's user or root; or run "
            "`muster debug snapshot` on the nodes and give the files"
        )
    return [made[node].model_copy(update={"asked": len(nodes)}) for node in nodes]


class Place(NamedTuple):
    """Where a job runs, and the number of the user whose it is."""

    nodes: list[str]
    uid: int


def place_of(job: str) -> Place:
    """Of a job that runs. Raises SourceError."""
    parts_of(job)
    told = _slurm("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T|%U|%N")
    rows = [each for line in told.splitlines() if len(each := line.strip().split("|")) == 3]
    state, uid, names = next((each for each in rows if each[0] == "RUNNING"), rows[0] if rows else ["", "", ""])
    if state not in ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED") or not names:
        raise SourceError(
            f"job {job} does not run{f' (it is {state.lower()})' if state else ''} · "
            f"without --live its logs are read: muster diagnose --job {job}"
        )
    nodes = _slurm("scontrol", "show", "hostnames", names).split()
    if wrong := [each for each in nodes if not _NODE.fullmatch(each)]:
        raise SourceError(f"job {job}: Slurm names {wrong[0]!r} · it is no name of a node")
    if not 0 < len(nodes) <= MOST_NODES:
        raise SourceError(f"job {job}: Slurm names {len(nodes)} nodes · at most {MOST_NODES} are asked at once")
    if not re.fullmatch(r"[0-9]{1,10}", uid):
        raise SourceError(f"job {job}: Slurm names {uid[:80]!r} as its user · it is no number of one")
    return Place(nodes, int(uid))


def as_user(uid: int) -> tuple[str, ...]:
    """What makes root's srun the job's user: Slurm starts steps for nobody else. Raises SourceError.

    Nothing of root's environment goes with it, as srun hands it on to processes that the user can read.
    """
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        raise SourceError(f"user {uid}, whose job it is, is not known here · run it where they can log in") from None
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "SLURM_CONF", "LANG") if name in os.environ]
    return (
        "setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--inh-caps=-all", "--bounding-set=-all",
        "--no-new-privs", "env", "--ignore-environment", "--chdir=/", *kept,
    )  # fmt: skip


def command(job: str, node: str, native: bool = False) -> list[str]:
    """What runs on a node. The interpreter and the package are those of this process, as a shared folder has them."""
    return [
        "srun", f"--jobid={job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1",
        "--quiet", "--input=none", "--time=2", "--export=ALL",
        sys.executable, "-P", "-m", "validation.diagnose.live", *(["--native"] if native else []), "--job", job,
    ]  # fmt: skip


def ask(job: str, node: str, native: bool = False, limit_s: float = LIMIT_S, rights: Sequence[str] = ()) -> Snapshot:
    """The snapshot of one node. Never raises: one that says nothing says that. `rights`: what srun is started by."""
    try:
        ran = run([*rights, *command(job, node, native)], limit_s, LARGEST)
    except OSError as wrong:
        return _silent(job, node, f"srun: {wrong.strerror}")
    if ran.large:
        return _silent(job, node, "it answers more than a snapshot can be")
    wrong_ = ""
    for line in _answers(ran.out):
        try:
            # Its name is the scheduler's: that is the one that people can use.
            return parse(line, node).model_copy(update={"node": node})
        except SourceError as wrong:
            wrong_ = wrong_ or str(wrong)
    if wrong_:
        return _silent(job, node, wrong_)
    if ran.code is None:
        return _silent(job, node, f"no answer in {limit_s:g} s")
    said = ran.said.strip().splitlines()
    return _silent(job, node, f"srun ended with {ran.code}: {said[-1][:200] if said else 'it said nothing'}")


def _answers(out: bytes) -> list[bytes]:
    """The lines that may be a snapshot, the last first. What a shell or an epilog says may come before and behind it,
    also in its line."""
    lines = [line[line.find(START) :] for line in out.splitlines() if START in line]
    return lines[: -MOST_ANSWERS - 1 : -1]


def _silent(job: str, node: str, why: str) -> Snapshot:
    return Snapshot(node=node, job=job, time=datetime.now(UTC), answered=False, missed=(why,))


def _slurm(*argv: str) -> str:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=SLURM_S, check=False)
    except FileNotFoundError:
        raise SourceError(
            f"{argv[0]} is not here · run it where Slurm's commands are, or on a node of the job without --job"
        ) from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{argv[0]}: no answer in {SLURM_S:g} s · try again, or on a node of the job") from None
    if ran.returncode:
        said = ran.stderr.strip() or "it said nothing"
        raise SourceError(f"{argv[0]}: {said[:300]} · look at the job's number: squeue --me")
    return ran.stdout
