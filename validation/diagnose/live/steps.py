"""How far a rank came, by what Muster's telemetry keeps: its metrics where they are answered, else its log.

The files are found by what the process has open; nothing else of the process is trusted, and what is read is small.
"""

import http.client
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from validation.diagnose.live.bounded import within

LIMIT_S = 2.0
TAIL = 256 << 10
"""Bytes of a log's end."""
LARGEST = 4 << 20
"""Bytes of an answer of metrics."""
MOST_OPEN = 4096
MOST_STEPS = 1 << 53
"""No job has done so many."""

_LOG = re.compile(r"/logs/rank-(?P<rank>\d{5,7})\.jsonl$")
_STEP = re.compile(rb"(?m)^muster_step\{[^}\n]{0,400}\} (\d{1,15}(?:\.\d+)?(?:e[+]?\d{1,2})?)$")


class Step(NamedTuple):
    """`exact`: it counts every step."""

    number: int
    exact: bool


def step_of(process: Path) -> Step | None:
    """The last step of a process (its folder in /proc) by its telemetry.

    None where it has none, tells none, or where the file system that its log is on does not answer.
    """
    return within(LIMIT_S + 1, lambda: _step_of(process), None)


def _step_of(process: Path) -> Step | None:
    log = _log(process)
    if log is None:
        return None
    found = _LOG.search(str(log))
    rank = int(found["rank"]) if found else 0
    number = _of_metrics(log.parent.parent / "targets" / f"rank-{rank:05}.json")
    if number is not None:
        return Step(number, True)
    number = _of_log(log)
    return None if number is None else Step(number, False)


def _log(process: Path) -> Path | None:
    try:
        names = os.listdir(process / "fd")[:MOST_OPEN]  # noqa: PTH208 (names only)
    except OSError:
        return None
    for name in names:
        try:
            path = (process / "fd" / name).readlink()
        except OSError:
            continue
        if _LOG.search(str(path)):
            return path
    return None


def _of_metrics(target: Path) -> int | None:
    """Asks the port that the file names, on this machine only."""
    try:
        with target.open("rb") as file:
            told = json.loads(file.read(1 << 16))
        port = int(str(told[0]["targets"][0]).rpartition(":")[2])
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        try:
            asked.request("GET", "/metrics")
            answer = asked.getresponse()
            steps = _STEP.findall(answer.read(LARGEST)) if answer.status == http.client.OK else []
        finally:
            asked.close()
        step = float(steps[0]) if len(steps) == 1 else -1.0
        return int(step) if 0 <= step < MOST_STEPS else None
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return None  # it has no metrics, or does not answer now: its log is looked at


def _of_log(path: Path) -> int | None:
    """Of the last whole line that has a step."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read(TAIL).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = told.get("step") if isinstance(told, dict) else None
        if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < MOST_STEPS:
            return step
    return None
