"""Until when a job may run, from what schedulers tell."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.stops.deadline import deadline, end_time

SHOWN = (
    "JobId=71 JobName=train UserId=a(1000) RunTime=00:10:00 TimeLimit=01:00:00 SubmitTime=2026-11-30T08:00:00 "
    "StartTime=2026-11-30T08:00:05 EndTime=2026-11-30T09:00:05 Deadline=N/A SuspendTime=None"
)


def test_the_earliest_of_all_limits_is_the_deadline() -> None:
    slurm = {"SLURM_JOB_ID": "71", "SLURM_JOB_END_TIME": "2000"}
    assert deadline(None, {}) is None
    assert deadline(500, slurm, started=1000).source == "own limit"  # type: ignore[union-attr]
    assert deadline(5000, slurm, started=1000).source == "SLURM_JOB_END_TIME"  # type: ignore[union-attr]
    assert deadline(5000, {**slurm, "MUSTER_DEADLINE": "1999"}, started=1000).at == 1999  # type: ignore[union-attr]


def test_scontrol_is_asked_where_slurm_set_no_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'show job -o 71' ] && echo '{SHOWN}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = deadline(None, {"SLURM_JOB_ID": "71"})
    assert found is not None
    assert (found.at, found.source) == (1796029205.0, "scontrol")
    assert deadline(None, {"SLURM_JOB_ID": "71; reboot"}) is None
    program.write_text("#!/bin/sh\nexit 1\n")
    assert deadline(None, {"SLURM_JOB_ID": "71"}) is None


def test_a_variable_that_is_no_time_is_an_error_and_not_no_limit() -> None:
    with pytest.raises(ValueError, match="MUSTER_DEADLINE: 'soon' is not a number of Unix seconds"):
        deadline(None, {"MUSTER_DEADLINE": "soon"})


@pytest.mark.parametrize("text", ["EndTime=Unknown", "EndTime=NONE", "", "Deadline=2026-11-30T09:00:05"])
def test_a_job_without_an_end_has_no_deadline(text: str) -> None:
    assert end_time(text) is None


@given(st.text() | st.from_regex(r"EndTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", fullmatch=True))
def test_no_text_of_scontrol_raises(text: str) -> None:
    end_time(text)
