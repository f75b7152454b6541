"""Lines for people are short and cannot move the cursor; JSON lines keep their envelope."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runtime.place import Place
from runtime.telemetry.log import LINE_LIMIT, human_line, json_line
from runtime.telemetry.record import Event, plain
from runtime.telemetry.redact import Redactor

HERE = Place(rank=3, world=4, node="gpu-1", attempt="job.1")
PROGRAM = """
from runtime.telemetry import Telemetry, TelemetryConfig
telemetry = Telemetry(TelemetryConfig(hardware_every_s=0))
telemetry("checkpoint.committed", step=5, seconds=1.23456)
telemetry("receiver.lost", level="warning", reason="x\\x1b[2Jy")
telemetry.close()
"""
ROOT = Path(__file__).parents[3]


def test_standard_error_gets_lines_for_people_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stderr=theirs)
        assert process.wait(60) == 0
        told = ""
        while select.select([ours], [], [], 0)[0]:
            told += os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    committed, lost = told.splitlines()
    assert committed.endswith("rank 0 step 5 checkpoint.committed seconds=1.235")
    assert lost.startswith("\x1b[33m")
    assert "\x1b[2J" not in lost


def test_standard_error_gets_json_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60, check=True
    )
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["checkpoint.committed", "receiver.lost"]


@given(st.text(), st.dictionaries(st.text(), st.text() | st.floats() | st.integers()))
def test_an_event_is_one_line_however_it_is_told(name: str, fields: dict[str, object]) -> None:
    event = Event(10**18, name, "info", None, plain(fields))
    for line in (human_line(event, HERE, Redactor()), json_line(event, HERE, "run", Redactor())):
        assert "\n" not in line
        assert not any(each < " " for each in line if each != "\t")


def test_a_field_cannot_forge_the_envelope() -> None:
    forged = {"rank": 0, "time": "now", "run": "other", "level": "debug"}
    line = json.loads(json_line(Event(10**18, "x", "error", 7, forged), HERE, "run", Redactor()))
    assert (line["rank"], line["run"], line["level"], line["step"]) == (3, "run", "error", 7)
    assert line["time"] == "2001-09-09T01:46:40.000000+00:00"


def test_a_very_long_event_is_cut_and_still_json() -> None:
    event = Event(10**18, "x", "info", 1, {f"field{number}": "é" * 10_000 for number in range(60)})
    line = json_line(event, HERE, "run", Redactor())
    assert len(line.encode()) < LINE_LIMIT
    assert json.loads(line)["cut"]
