"""The folder of incidents: one file for each node and run of a job, on a disk that all nodes share.

A file is written beside and then linked to its name: it is there whole or not at all, two writers of one incident
cannot both be first, and no lock is needed, on NFS as elsewhere (link(2) is atomic there; appending is not).
"""

import contextlib
import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from pydantic import ValidationError

from policies.evidence import sync
from validation.diagnose.allocation import NODE
from validation.diagnose.history import Incident, Refused

LARGEST = 8 << 10
"""Bytes of a record; ours have less than one KiB."""
MOST_KEPT = 512
"""Records of a node. Beyond them goes the oldest of the user who has the most, so that nobody drives out others'."""
MOST_TOLD = 20
"""Records that cannot be read, of which it is said one by one."""


class HistoryError(Exception):
    """A folder that cannot be used: where, what is wrong, what to do."""


def add(folder: Path, new: Incident) -> Path:
    """Keeps an incident; returns its file. Raises HistoryError, Refused where this run of the job is there already."""
    if exposed := _exposed(folder, stat.S_IWGRP | stat.S_IWOTH):
        raise HistoryError(f"{folder}: {exposed} · chmod go-w it: what anybody can write is no history")
    mine = folder / new.node
    name = f"{new.job}-{new.start.astimezone(UTC):%Y%m%dT%H%M%SZ}" if new.start else new.job
    path, beside = mine / f"{name}.json", mine / f".{name}.{token_hex(4)}"
    try:
        mine.mkdir(mode=0o755, exist_ok=True)
        if new.start is None and any(mine.glob(f"{new.job}-*.json")):
            raise FileExistsError
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(new.model_dump_json() + "\n")
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.link(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        sync(mine)
    except FileExistsError:
        raise Refused(f"{path}: job {new.job} is recorded for {new.node} already · nothing was changed") from None
    except OSError as wrong:
        raise HistoryError(
            f"{path}: {wrong.strerror} · it is for who owns the folder, on a disk all nodes share"
        ) from None
    _shrink(mine)
    return path


def records(folder: Path, since: datetime, nodes: Sequence[str] = ()) -> tuple[list[Incident], list[str]]:
    """Incidents from then on, of all nodes or of some; and what could not be read, with why. Raises HistoryError."""
    found: list[Incident] = []
    wrong: list[str] = []
    if exposed := _exposed(folder, stat.S_IWOTH):  # a copy may be its group's: nothing is decided by it
        wrong.append(f"{folder}: {exposed}: others than root may have written what is in it")
    failed = 0
    for path, node, told in _files(folder, nodes, since):
        try:
            if told is not None:
                raise told
            each = _read(path)
            if each.node != node:
                raise ValueError(f"says that it is of {each.node}")
        except (OSError, ValueError) as error:
            failed += 1
            if failed <= MOST_TOLD:
                wrong.append(f"{path}: {_why(error)} · it is not counted; remove it if it stays")
            continue
        if each.at >= since:
            found.append(each)
    if failed > MOST_TOLD:
        wrong.append(f"{folder}: {failed - MOST_TOLD} more records cannot be read")
    return found, wrong


def _files(folder: Path, nodes: Sequence[str], since: datetime) -> Iterator[tuple[Path, str, OSError | None]]:
    """Records that were written since then, whose they are by their place, and why one cannot be looked at."""
    try:
        there = sorted(each.name for each in os.scandir(folder) if each.is_dir(follow_symlinks=False))
    except OSError as wrong:
        advice = "give the folder that the epilog writes to, where it is mounted"
        raise HistoryError(f"{folder}: {wrong.strerror} · {advice}") from None
    for node in there:
        if NODE.fullmatch(node) is None or (nodes and node not in nodes):
            continue
        try:
            mine = sorted(os.scandir(folder / node), key=lambda each: each.name)
        except FileNotFoundError:
            continue
        except OSError as wrong:
            yield folder / node, node, wrong
            continue
        for each in mine:
            if each.name.startswith(".") or not each.name.endswith(".json"):
                continue
            try:
                if each.stat(follow_symlinks=False).st_mtime >= since.timestamp():
                    yield Path(each.path), node, None
            except FileNotFoundError:  # its node had too many
                continue
            except OSError as wrong:
                yield Path(each.path), node, wrong


def _read(path: Path) -> Incident:
    """Raises OSError, ValueError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is no regular file")
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes")
    if not raw.endswith(b"\n"):
        raise ValueError("is torn: its end is missing")
    return Incident.model_validate_json(raw)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return str(getattr(error, "strerror", None) or error)


def _exposed(folder: Path, whom: int) -> str:
    """How others can write there; empty where they cannot, or where it is not there."""
    with contextlib.suppress(OSError):
        if folder.stat().st_mode & whom:
            return "others may write there"
    return ""


def _shrink(mine: Path) -> None:
    """Removes what is too much. What cannot be read is the first to go. Never raises: the incident is kept."""
    with contextlib.suppress(OSError):
        paths = [each for each in mine.iterdir() if not each.name.startswith(".")]
        if len(paths) <= MOST_KEPT:
            return
        by_user: dict[str, list[tuple[float, Path]]] = defaultdict(list)
        for path in paths:
            try:
                each = _read(path)
                by_user[each.user].append((each.at.timestamp(), path))
            except (OSError, ValueError):
                path.unlink(missing_ok=True)
        for _ in range(sum(map(len, by_user.values())) - MOST_KEPT):
            most = max(by_user.values(), key=len)
            oldest = min(most)
            most.remove(oldest)
            oldest[1].unlink(missing_ok=True)
