"""Slurm's accounting as it was recorded, hostile names, and what cannot be read: that is said, never passed over."""

import json
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validation.efficiency import sacct
from validation.efficiency.accounting import (
    COLUMNS,
    Accounting,
    AccountingError,
    gpus,
    of_fields,
    of_json,
    of_text,
    parse,
)

RECORDED = Path(__file__).parent / "recorded"
HEAD = "|".join(COLUMNS)
DELIMITER = "<0123456789abcdef>"


def row(**columns: str) -> str:
    """A line of text, sound but for what is given."""
    sound = {
        "JobIDRaw": "7", "User": "ada", "Partition": "train", "State": "COMPLETED", "Start": "1000", "End": "4600",
        "AllocTRES": "billing=8,cpu=8,gres/gpu:h100=4,gres/gpu=4,mem=64G,node=1", "Cluster": "alpha", "Account": "lab",
        "Submit": "900", "Eligible": "940", "Suspended": "00:00:00",
    }  # fmt: skip
    return "|".join({**sound, **columns}[each] for each in COLUMNS)


def test_the_three_forms_of_one_accounting_are_the_same_jobs() -> None:
    """Recorded from the sacct and slurmdbd of Debian 12 (22.05.8), of jobs put into the database; names replaced."""
    text = parse((RECORDED / "sacct-22.05.txt").read_text())
    delimited = of_fields((RECORDED / "sacct-22.05-delimited.txt").read_text(), sacct.ASKED, DELIMITER)
    document = parse((RECORDED / "sacct-22.05.json").read_text())
    assert delimited == document
    assert text.jobs == tuple(each.model_copy(update={"name": ""}) for each in document.jobs)
    assert [(each.id, each.state, each.gpus, each.suspended_s) for each in document.jobs] == [
        ("101", "COMPLETED", {"h100": 16}, 0),
        ("102", "FAILED", {"": 2}, 0),
        ("103", "NODE_FAIL", {"h100": 8}, 900),
        ("104", "COMPLETED", {}, 0),
        ("107", "RUNNING", {"h100": 4}, 0),
        ("108", "OUT_OF_MEMORY", {"h100": 8}, 0),
        ("108", "COMPLETED", {"h100": 8}, 0),
    ]
    assert document.jobs[2].name == "two\nlines|9999|alpha|bob"  # sacct prints it as it is
    assert (document.waiting, document.problems) == (1, ())


def test_newer_json_says_states_in_lists_and_numbers_with_whether_they_are_set() -> None:
    """Recorded from Slurm 24.05.4 (data_parser v0.0.40), private names replaced, GPUs added."""
    found = parse((RECORDED / "sacct-24.05.json").read_text())
    (job,) = found.jobs
    assert (job.id, job.cluster, job.user, job.partition, job.state) == ("26", "slurm24", "ada", "test", "COMPLETED")
    assert (job.eligible_s, job.start_s, job.end_s) == (1744187887, 1744187888, 1744191488)
    assert job.gpus == {"h100": 4}
    assert found.problems == ()


@pytest.mark.parametrize(
    ("tres", "models"),
    [
        ("billing=8,cpu=8,gres/gpu=4,mem=64G,node=1", {"": 4}),
        ("cpu=8,gres/gpu:h100=4,gres/gpu=4", {"h100": 4}),
        ("cpu=8,gres/gpu:h100-80=1,mem=63000M", {"h100-80": 1}),
        ("gres/gpu=6,gres/gpu:a100=2,gres/gpu:v100=2", {"": 2, "a100": 2, "v100": 2}),
        ("gres/gpu:1g.10gb=2", {"1g.10gb": 2}),
        ("cpu=8,gres/gpumem=80G,gres/gpuutil=0,gres/shard=3", {}),
        ("", {}),
    ],
)
def test_each_gpu_counts_once_however_the_resources_are_written(tres: str, models: dict[str, int]) -> None:
    assert gpus(tres) == models


@pytest.mark.parametrize("tres", ["gres/gpu=", "gres/gpu=-2", "gres/gpu=4G", "gres/gpu=99999999", "gres/gpu=1e3"])
def test_a_count_that_is_none_is_an_error_and_not_zero(tres: str) -> None:
    with pytest.raises(ValueError, match="no count"):
        gpus(tres)


@pytest.mark.parametrize(
    "wrong",
    [
        {"JobIDRaw": "x"},
        {"State": ""},
        {"Start": "yesterday"},
        {"Start": "2026-11-30T10:00:00"},
        {"Start": "99999999999999"},
        {"End": "999"},
        {"AllocTRES": ""},
        {"AllocTRES": "gres/gpu=many"},
        {"Suspended": "a while"},
        {"User": "one|more"},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_read_is_told_with_its_line(wrong: dict[str, str]) -> None:
    found = of_text("\n".join([HEAD, row(), row(JobIDRaw="8", **wrong) if "JobIDRaw" not in wrong else row(**wrong)]))
    assert [each.id for each in found.jobs] == ["7"]
    (problem,) = found.problems
    assert problem.startswith("line 3: ")


@pytest.mark.parametrize(
    "changed",
    [
        {"Start": "Unknown", "End": "Unknown", "State": "PENDING"},
        {"End": "1000", "AllocTRES": "", "State": "CANCELLED by 7"},
    ],
)
def test_a_job_that_never_started_is_counted_apart(changed: dict[str, str]) -> None:
    found = of_text(f"{HEAD}\n{row(**changed)}\n")
    assert (found.jobs, found.waiting, found.problems) == ((), 1, ())


def test_the_guide_and_the_advice_ask_sacct_for_the_columns_that_are_read() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
    assert f"-o {','.join(COLUMNS)} > " in guide
    with pytest.raises(AccountingError, match=f"-o {','.join(COLUMNS)} "):
        of_text("JobIDRaw|User")


def test_a_requeued_job_is_one_for_each_time_that_it_ran_and_a_record_given_twice_is_one() -> None:
    again = row(Start="5000", End="6000")
    running = row(Start="5000", End="Unknown", State="RUNNING")
    found = of_text("\n".join([HEAD, again, row(), running, row(), row(JobIDRaw="7.batch"), ""]))
    assert [(each.start_s, each.end_s) for each in found.jobs] == [(1000, 4600), (5000, 6000)]
    assert found.problems == ()


def test_steps_that_trail_and_lines_that_end_with_the_separator_are_read() -> None:
    assert of_text(f"{HEAD}|\r\n{row()}|\r\n").jobs == of_text(f"{HEAD}\n{row()}").jobs


@pytest.mark.parametrize("column", ["JobName", "Comment", "SubmitLine"])
def test_text_with_columns_that_users_write_is_refused(column: str) -> None:
    """A name of `x` and a new line could be a whole row of somebody else's."""
    with pytest.raises(AccountingError, match=column):
        of_text(f"{HEAD}|{column}\n{row()}|x\n{row(User='bob')}|y")


@pytest.mark.parametrize(
    "text",
    [
        *("", "no table", "[]", "{", "{}", '{"jobs": 7}', '{"jobs": [], "errors": ["no database"]}'),
        *("[" * 100_000, '{"jobs":' + "[" * 100_000),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_accounting_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(AccountingError, match="·"):
        parse(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["set", "number", "current"]), each),
    max_leaves=6,
)
KEYS = ["job_id", "time", "state", "tres", "user", "association", "partition", "name", "cluster"]


@given(jobs=st.lists(JSON | st.dictionaries(st.sampled_from(KEYS), JSON), max_size=4))
@example(
    jobs=[{"job_id": 1, "time": {"start": 10**30, "end": True}, "state": {"current": []}, "tres": {"allocated": [7]}}]
)
def test_whatever_json_holds_is_read_or_told(jobs: list[Any]) -> None:
    found = of_json(json.dumps({"jobs": jobs}))
    assert len(found.jobs) + found.waiting + len(found.problems) <= len(jobs)


def test_half_a_character_in_a_name_can_be_written_again() -> None:
    record = json.loads((RECORDED / "sacct-24.05.json").read_text())
    record["jobs"][0]["user"] = "a\ud800"
    (job,) = of_json(json.dumps(record)).jobs
    assert job.user.encode() == b"a?"


@given(text=st.text())
@example(text=f"{HEAD}\n" + "|" * (len(COLUMNS) - 1))
def test_whatever_text_holds_is_read_or_refused(text: str) -> None:
    for each in (text, f"{HEAD}\n{text}"):
        try:
            assert isinstance(parse(each), Accounting)
        except AccountingError:
            continue


@given(name=st.text(), user=st.text(st.characters(exclude_characters="<")))
@example(name=f"x\n{row(User='bob')}|y", user="ada")
@example(name="a|b\n\n1|2", user="<b>\x1b[2J")
def test_with_a_delimiter_that_nobody_foresees_a_name_is_a_name(name: str, user: str) -> None:
    if DELIMITER in name + user:
        return
    fields = [*row(User="USER").split("|"), name]
    fields[COLUMNS.index("User")] = user
    line = DELIMITER.join(fields) + DELIMITER + "\n"
    found = of_fields(line * 2, (*COLUMNS, "JobName"), DELIMITER)
    (job,) = found.jobs
    assert (job.name, job.user) == (name, user)


@pytest.mark.parametrize("cut", [1, 30, 90])
def test_an_answer_that_was_cut_off_is_none(cut: int) -> None:
    line = DELIMITER.join(row().split("|")) + DELIMITER + "\n"
    with pytest.raises(AccountingError, match="cut off"):
        of_fields(line + line[: -cut - 1], COLUMNS, DELIMITER)


# A sacct of our own, to see what it is asked and what is done with what it does.


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a program in sacct's place."""

    def put(script: str) -> None:
        program = tmp_path / "bin" / "sacct"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/usr/bin/python3\nimport os, sys, time\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return put


NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)

ANSWERS = """
ask = dict(each.lstrip("-").partition("=")[::2] for each in sys.argv[1:])
assert ask["starttime"] == "2026-11-29T12:00:00" and os.environ["TZ"] == "UTC", ask
assert os.environ["SLURM_TIME_FORMAT"] == "%s" and "SACCT_FORMAT" not in os.environ
values = {"JobIDRaw": "7", "State": "COMPLETED", "Start": "1000", "End": "4600", "AllocTRES": "gres/gpu=4",
    "JobName": "x; touch owned $(touch owned)\\n8|bob", "User": ask.get("user", "all")}
print("".join(values.get(each, "") + ask["delimiter"] for each in ask["format"].split(",")))
"""


def test_sacct_is_asked_in_utc_without_a_shell_and_without_the_users_settings(
    scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler(ANSWERS)
    monkeypatch.setenv("SACCT_FORMAT", "user")
    monkeypatch.chdir(tmp_path)
    (job,) = sacct.ask(NOW - timedelta(days=1), NOW, ["a; touch owned", "b"]).jobs
    assert job.user == "a; touch owned,b"
    assert job.name == "x; touch owned $(touch owned)\n8|bob"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sys.exit('Problem talking to the database')", "Problem talking to the database"),
        ("print('half of a row')", "cut off"),
        ("os.write(1, b'x' * 2000)\ntime.sleep(60)", "more than"),
    ],
)
def test_a_sacct_that_fails_or_says_too_much_is_an_error(
    scheduler: Any, script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler(script)
    monkeypatch.setattr(sacct, "MOST_BYTES", 1000)
    with pytest.raises(AccountingError, match=said):
        sacct.ask(NOW - timedelta(days=1), NOW)


def test_a_sacct_that_never_ends_is_ended_with_its_children(scheduler: Any, tmp_path: Path) -> None:
    scheduler(f"""
if os.fork() == 0:
    open({str(tmp_path / "child")!r}, "w").write(str(os.getpid()))
time.sleep(600)""")
    with pytest.raises(AccountingError, match="no end"):
        sacct.ask(NOW - timedelta(days=1), NOW, timeout_s=3)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the child of sacct lives on")


def test_without_sacct_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AccountingError, match="--accounting"):
        sacct.ask(NOW - timedelta(days=1), NOW)
