"""The end of the kernel's log with times, from its own buffer, else from the journal."""

import errno
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

KMSG = Path("/dev/kmsg")
MOST_LINES = 1000
"""The newest that are kept."""
BEFORE = timedelta(minutes=2)
"""Older lines than this before a job's start are of other jobs: it is one clock."""
LIMIT_S = 5.0
_MOST_RECORDS = 200_000
_RECORD = 8192
"""Bytes: the kernel gives a record at once or not at all (Documentation/ABI/testing/dev-kmsg)."""


_OOM = re.compile(r"oom-kill:constraint=CONSTRAINT_MEMCG.*task_memcg=(?P<group>/[^,]*),.*pid=(?P<pid>\d+)")
_KILLED = re.compile(r"Killed process (?P<pid>\d+) ")


class NoLog(Exception):  # noqa: N818 - as other reasons
    """Why it cannot be read, and what to do."""


def kernel_log(node: str, started: datetime | None, path: Path = KMSG) -> list[str]:
    """Lines as `journalctl -k -o short-iso` writes them, since the job was started. Raises NoLog."""
    since = started - BEFORE if started else datetime.now(UTC) - 10 * BEFORE
    try:
        told = _of_buffer(node, path, since)
    except OSError as wrong:
        kept = _of_journal(since)
        if kept is None:
            raise NoLog(
                f"{wrong.strerror or wrong} · as root, or a member of adm or systemd-journal; or give "
                "`journalctl -k -o short-iso` of the node as a file"
            ) from None
        told = kept
    return told[-MOST_LINES:]


def of_job(lines: Sequence[str], groups: Iterable[str]) -> list[str]:
    """Without the ends of processes of other jobs on the same node, by their control group. Pure.

    `groups`: those of the ranks, as /proc/PID/cgroup has them.
    """
    mine = {each.rstrip("/") for each in groups} - {""}
    others = {
        found["pid"]
        for each in lines
        if (found := _OOM.search(each)) and not any(_related(found["group"].rstrip("/"), own) for own in mine)
    }
    return [
        each
        for each in lines
        if not any(found and found["pid"] in others for found in (_OOM.search(each), _KILLED.search(each)))
    ]


def _related(one: str, other: str) -> bool:
    """Whether both are in the same job: the same, one in the other, or steps and tasks of one Slurm job."""
    job = re.match(r"(.*/job_\d+)(?:/|$)", other)
    return f"{one}/".startswith(f"{job[1] if job else other}/") or (bool(one) and f"{other}/".startswith(f"{one}/"))


def _of_buffer(node: str, path: Path, since: datetime) -> list[str]:
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)  # records count as this clock does
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found: list[str] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(file, _RECORD)
            except OSError as wrong:
                if wrong.errno == errno.EAGAIN:  # the end
                    break
                if wrong.errno == errno.EPIPE:  # overwritten while it was read
                    continue
                raise
            if not record:
                break
            found += _line(record, node, started, since)
    finally:
        os.close(file)
    return found


def _line(record: bytes, node: str, started: float, since: datetime) -> list[str]:
    head, semicolon, rest = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not fields[2].isdecimal() or not fields[0].isdecimal():
        return []
    if int(fields[0]) >> 3:  # a program wrote it
        return []
    at = datetime.fromtimestamp(started + int(fields[2]) / 1e6, UTC)
    if at < since:
        return []
    return [f"{at.isoformat(timespec='seconds')} {node} kernel: {rest.partition(chr(10))[0]}"]


def _of_journal(since: datetime) -> list[str] | None:
    """None where it cannot be read."""
    argv = [
        "journalctl",
        "-k",
        "-b",
        "-o",
        "short-iso",
        "--no-pager",
        "-n",
        str(MOST_LINES),
        "-S",
        f"@{since.timestamp():.0f}",
    ]
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Who may not see the kernel's lines, or has no journal, gets none and a hint, and no error.
    told = [each for each in ran.stdout.decode("utf-8", "replace").splitlines() if not each.startswith("-- ")]
    return told if ran.returncode == 0 and (told or not ran.stderr.strip()) else None
