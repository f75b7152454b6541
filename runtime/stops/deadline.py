"""Until when the job may run: what the scheduler, the environment and the configuration say."""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

VARIABLE = "MUSTER_DEADLINE"
"""Unix seconds: for schedulers that tell their jobs nothing, set by a job template."""

ASKING_SLURM_S = 10.0
"""How long scontrol may take. A busy controller answers within seconds, or the limit is unknown."""


class Deadline(BaseModel):
    """`at` is in Unix seconds; `source` says who set it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: float
    source: str


def deadline(
    limit_s: float | None = None, environment: Mapping[str, str] = os.environ, started: float | None = None
) -> Deadline | None:
    """The earliest of those known; None where none is. `started`: Unix seconds, now by default.

    Slurm sets SLURM_JOB_END_TIME since 22.05; before, scontrol is asked. Kubernetes tells a pod nothing about
    activeDeadlineSeconds: a job template sets MUSTER_DEADLINE. Raises ValueError for a variable that is no number.
    """
    known = []
    if limit_s is not None:
        known.append(Deadline(at=(time.time() if started is None else started) + limit_s, source="own limit"))
    for name in ("SLURM_JOB_END_TIME", VARIABLE):
        if environment.get(name):
            known.append(Deadline(at=_seconds(name, environment[name]), source=name))
    if "SLURM_JOB_ID" in environment and "SLURM_JOB_END_TIME" not in environment:
        found = end_time(_scontrol(environment["SLURM_JOB_ID"]))
        if found is not None:
            known.append(Deadline(at=found, source="scontrol"))
    return min(known, key=lambda each: each.at, default=None)


def end_time(shown: str) -> float | None:
    """EndTime of `scontrol show job` in Unix seconds, which it prints in the node's local time; None if it has none."""
    found = re.search(r"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b", shown)
    try:
        return datetime.fromisoformat(found[1]).astimezone().timestamp() if found else None
    except ValueError:
        return None


def _seconds(name: str, text: str) -> float:
    try:
        return float(int(text))
    except ValueError:
        raise ValueError(
            f"{name}: {text[:40]!r} is not a number of Unix seconds · set it right, or not at all"
        ) from None


def _scontrol(job: str) -> str:
    if not job.isdecimal():
        return ""
    try:
        asked = subprocess.run(
            ["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=ASKING_SLURM_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout[:65536]
