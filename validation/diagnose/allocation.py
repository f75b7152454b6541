"""What Slurm says of a job's place and time: whose it was, on which nodes, from when to when.

It is asked for fields that no user can write in: a job's name, comment and script may hold any text.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from validation.diagnose.slurm import LIMIT_S, parts_of
from validation.diagnose.sources import SourceError

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""A node's name: also that of a folder, so it begins with no dot."""
MOST_NODES = 20_000
LIST_CHARS = 64 << 10
"""Of a list of nodes as Slurm shortens it."""

_LIST = re.compile(r"[A-Za-z0-9._,\[\]-]+")


@dataclass(frozen=True)
class Allocation:
    """One run of a job. `end`: None while it runs, or where Slurm does not say."""

    job: str
    user: str
    nodes: tuple[str, ...]
    start: datetime | None = None
    end: datetime | None = None


def short(name: str) -> str:
    """A node's name without its domain; an address stays whole."""
    return name if name.replace(".", "").isdecimal() else name.partition(".")[0]


def allocation_of(job: str) -> Allocation:
    """Of the job's last run. Raises SourceError: no such job, no Slurm here, an answer that is none.

    sacct is asked first: of a job that is being ended, squeue names only the nodes that are not yet done with it.
    """
    parts_of(job)
    columns = "JobIDRaw,JobID,User,NodeList,Start,End"
    asked = (
        ("sacct", "--jobs", job, "--allocations", "--parsable2", "--noheader", f"--format={columns}"),
        ("squeue", "--jobs", job, "--states=all", "--array", "--noheader", "--format=%A|%i|%u|%N|%S|%e"),
    )
    wrong = []
    for argv in asked:
        try:
            rows = [line.split("|") for line in _asked(*argv).splitlines()]
        except SourceError as error:
            wrong.append(str(error))
            continue
        mine = [row for row in rows if len(row) == 6 and job in row[:2] and _LIST.fullmatch(row[3])]
        if mine:
            raw, _, user, nodes, start, end = mine[-1]
            return Allocation(raw, user[:64], expanded(nodes), _time(start), _time(end))
    raise SourceError(wrong[0] if len(wrong) == len(asked) else f"job {job}: Slurm names no nodes of it · look it up")


def expanded(nodes: str) -> tuple[str, ...]:
    """The names in a list as `gpu-[0-3],login-1`. Raises SourceError."""
    if not nodes or len(nodes) > LIST_CHARS or not _LIST.fullmatch(nodes):
        raise SourceError(f"{nodes[:80]!r} is no list of nodes · give it as Slurm does: gpu-[0-3]")
    names = nodes.split(",") if "[" not in nodes else _asked("scontrol", "show", "hostnames", nodes).split()
    if not names or len(names) > MOST_NODES or not all(NODE.fullmatch(each) for each in names):
        raise SourceError(f"{nodes[:80]!r} is no list of nodes · give it as Slurm does: gpu-[0-3]")
    return tuple(dict.fromkeys(names))


def _asked(*argv: str) -> str:
    """What Slurm answers, with times in seconds since the epoch, or in UTC where it does not know how."""
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        ran = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False, env=environment
        )
    except FileNotFoundError:
        raise SourceError(f"there is no {argv[0]} here · run it where Slurm's commands are") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{argv[0]}: no answer in {LIMIT_S} s · try again") from None
    if ran.returncode:
        raise SourceError(f"{argv[0]}: {_first(ran.stderr.splitlines())} · try again where Slurm answers")
    return ran.stdout


def _first(lines: Sequence[str]) -> str:
    return next((line.strip()[:300] for line in lines if line.strip()), "it failed and did not say why")


def _time(text: str) -> datetime | None:
    """None for `Unknown` and `N/A`."""
    try:
        if text.isascii() and text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC) if 0 < int(text) < 1 << 33 else None
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
