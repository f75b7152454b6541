"""The logs of a Slurm job: where scontrol says that they are, or sacct where the controller has forgotten the job."""

import glob
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.diagnose.sources import SourceError

LIMIT_S = 30
"""Seconds for an answer of Slurm."""

ID = re.compile(r"(?P<job>\d{1,10})(?:_(?P<task>\d{1,10}))?")
"""As Slurm writes it: a job, or a task of an array."""

_RANK = re.compile(r"rank[_=.-]?\d+", re.IGNORECASE)
_OPTION = re.compile(r"\s(?:-o|-e|--output|--error)(?:=|\s+)?(\S+)")


@dataclass(frozen=True)
class JobLogs:
    """What a job left. `folder`: where its own log lies."""

    id: str
    folder: Path
    paths: tuple[Path, ...]


def parts_of(job: str) -> re.Match[str]:
    """The number of a job, and its task's if it is one of an array. Raises SourceError where it is none."""
    found = ID.fullmatch(job)
    if found is None:
        raise SourceError(f"{job!r} is no Slurm job · give a number, as 4711, or 4711_3 for a task of an array")
    return found


def logs_of(job: str) -> JobLogs:
    """The logs of a job that ran or runs, and the files beside them that have its number in their names.

    Raises SourceError: no such job, no Slurm here, or nothing there that it wrote.
    """
    number = parts_of(job)
    folders, named = _of_controller(job) or _of_accounting(job, number)
    found = dict.fromkeys(path for path in named if path.is_file())
    for folder in dict.fromkeys([path.parent for path in found] or [*folders, *_below(folders)]):
        found |= dict.fromkeys(_beside(folder, job))
    if not found:
        looked = ", ".join(map(str, [*named, *folders]))
        raise SourceError(
            f"job {job}: no log is there: {looked} · run it where the job's folder is mounted, or give logs"
        )
    whole = [path for path in found if path.is_dir()]
    paths = tuple(path for path in found if not any(folder in path.parents for folder in whole))
    first = next(iter(found))
    return JobLogs(job, first if first.is_dir() else first.parent, paths)


def _of_controller(job: str) -> tuple[list[Path], list[Path]] | None:
    """Folders and logs, by scontrol, which fills in the patterns of names. None where it does not know the job."""
    told = _asked("scontrol", "show", "job", job)
    if not told:
        return None
    # A job's name may hold anything, also lines like these: Slurm's own come after it.
    folders, named = [], []
    for record in re.split(r"(?m)^(?=JobId=)", told):
        fields = dict(re.findall(r"(?m)^ {3}(WorkDir|StdOut|StdErr)=(.+)$", record))
        folders += [Path(fields["WorkDir"])] if "WorkDir" in fields else []
        named += [Path(fields[name]) for name in ("StdOut", "StdErr") if name in fields]
    return folders, named


def _of_accounting(job: str, number: re.Match[str]) -> tuple[list[Path], list[Path]]:
    """The same, by sacct, which keeps the line that the job was sent with, and not what its script says of logs."""
    told = _asked(
        "sacct", "--jobs", job, "--allocations", "--parsable2", "--noheader", "--format", "WorkDir,SubmitLine"
    )
    if told is None:
        raise SourceError("neither scontrol nor sacct is here · run it where Slurm's commands are, or give the logs")
    folders, named = [], []
    for record in told.splitlines():
        folder, _, sent = record.partition("|")
        if folder.startswith("/"):
            folders.append(Path(folder))
            default = [f"slurm-{job}.out", f"slurm-{number['job']}_*.out"]
            for name in [*_OPTION.findall(sent), *default]:
                named += _matching(Path(glob.escape(folder), _pattern(name, number)))
    if not folders:
        raise SourceError(f"job {job}: Slurm knows no such job · look at the number, or give the job's logs")
    return folders, named


def _pattern(name: str, number: re.Match[str]) -> str:
    """A name with Slurm's patterns as one of a shell: the job's number, and anything for what sacct does not tell."""
    known = {"A": number["job"], "a": number["task"], "j": number["job"] if number["task"] is None else None}
    parts = re.split(r"(%\d*[A-Za-z])", name)
    return "".join((known.get(each[-1]) or "*") if i % 2 else glob.escape(each) for i, each in enumerate(parts))


def _matching(pattern: Path) -> list[Path]:
    return sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


def _below(folders: Iterable[Path]) -> Iterator[Path]:
    """Where jobs like to keep their logs."""
    for folder in dict.fromkeys(folders):
        try:
            yield from (each for each in sorted(folder.iterdir()) if each.is_dir())
        except OSError:
            continue


def _beside(folder: Path, job: str) -> Iterator[Path]:
    """What has the job's number in its name; the folder itself where it has it in its own."""
    has = re.compile(rf"(?<!\d){job}(?!\d)")
    if has.search(_RANK.sub("", folder.name)):
        yield folder
        return
    try:
        yield from (each for each in sorted(folder.iterdir()) if has.search(_RANK.sub("", each.name)))
    except OSError:
        return  # then its logs, which are named, are all that can be read


def _asked(*argv: str) -> str | None:
    """What Slurm answers; nothing where it knows no such job; none where the command is not here."""
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{argv[0]}: no answer in {LIMIT_S} s · try again, or give the job's logs") from None
    if "accounting storage is disabled" in ran.stderr:
        raise SourceError(
            "the controller does not know the job, or no longer, and this Slurm keeps no accounting · "
            "look at the number, or give the job's logs"
        )
    if ran.returncode and "Invalid job id" not in ran.stderr:
        raise SourceError(f"{argv[0]}: {ran.stderr.strip()[:300]} · give the job's logs")
    return ran.stdout if not ran.returncode else ""
