"""The scheduler's accounting as jobs: Slurm's `sacct`, in its JSON or its parsable text. Pure; inputs are hostile.

Wordings: JSON of Slurm 21.08 and 22.05 (a state is a word, a number a number) and of 23.11 and newer (a state is a
list, many numbers say whether they are set). Names of users, accounts and jobs may be anything.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Key: TypeAlias = tuple[str, str, int]
LATEST_S = 253_402_300_800
"""Seconds since the epoch at the end of the year 9999: a later time is none."""
MOST_GPUS = 1_000_000
"""Of one job."""
PROBLEMS_SHOWN = 20

REQUIRED = ("JobIDRaw", "User", "Partition", "State", "Start", "End", "AllocTRES")
OPTIONAL = ("Cluster", "Account", "Submit", "Eligible", "Suspended")
COLUMNS = (*REQUIRED, *OPTIONAL)
"""Columns of parsable text, whose values nobody but the scheduler and its administrators writes."""

NEVER = frozenset({"", "None", "Unknown", "0", "N/A"})
"""How sacct says that something has not happened."""
BAD = frozenset({"BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})
"""States of a job that broke. One that was cancelled, preempted or ran out of time did not."""

_STATE = re.compile(r"[A-Z_]+")
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,2}):)?(\d{1,2}):(\d{1,2})(?:\.\d+)?")
_GPU = re.compile(r"gres/gpu(?::(?P<model>[^=,]+))?")
_JOB = re.compile(r"\d{1,20}")
_STEP = re.compile(r"\d{1,20}\..*", re.DOTALL)


class AccountingError(Exception):
    """Accounting that cannot be used at all: what is wrong, what to do."""


class Job(BaseModel):
    """One allocation: a job that went back into the queue has one for each time that it ran. Times since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    cluster: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    state: str
    eligible_s: int | None = None
    """When it could have started for the first time; when it was handed in, where that is all that is known."""
    start_s: int
    end_s: int | None = None
    """None while it runs."""
    suspended_s: int = 0
    gpus: Mapping[str, int] = Field(default_factory=dict)
    """How many, by model as the scheduler calls it; "" where it does not say the model."""

    @property
    def key(self) -> Key:
        """What no other allocation has."""
        return self.cluster, self.id, self.start_s

    @property
    def count(self) -> int:
        """GPUs of all models."""
        return sum(self.gpus.values())

    @property
    def broke(self) -> bool:
        """Whether it ended badly, by no decision of a person or the scheduler."""
        return self.state in BAD


class Accounting(BaseModel):
    """What was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs: tuple[Job, ...] = ()
    waiting: int = 0
    """Records of jobs that never started, or not yet."""
    problems: tuple[str, ...] = ()
    """Records that could not be read, and why."""


def parse(text: str) -> Accounting:
    """A file of `sacct --json` or of `sacct --parsable2` with a header. Raises AccountingError."""
    if text.lstrip()[:1] == "{":
        return of_json(text)
    return of_text(text)


def of_json(text: str) -> Accounting:
    """`sacct --json`. Raises AccountingError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise AccountingError(f"no JSON: {str(wrong)[:200]} · write it again with sacct --json") from None
    if not isinstance(found, dict) or not isinstance(found.get("jobs"), list):
        raise AccountingError('no "jobs" in it: not what sacct --json writes · give its whole output')
    if found.get("errors"):
        raise AccountingError(f"sacct reported errors: {json.dumps(found['errors'])[:300]} · mend them, ask again")
    return _gathered((f"job {number}", _columns_of(each)) for number, each in enumerate(found["jobs"], 1))


def of_text(text: str) -> Accounting:
    """`sacct --parsable2` (or --parsable) with a header. Raises AccountingError.

    A job's name may hold the separator and ends of lines, and so pass for rows of somebody else: columns that users
    write are refused.
    """
    head, _, rest = text.partition("\n")
    columns = head.strip("\r").split("|")
    ends = columns[-1] == ""
    columns = columns[:-1] if ends else columns
    missing = [each for each in REQUIRED if each not in columns]
    if missing:
        raise AccountingError(f"no column {', '.join(missing)} · {_ADVICE}")
    others = [each for each in columns if each not in COLUMNS]
    if others or len(set(columns)) < len(columns):
        shown = ", ".join(others[:8]) or "one twice"
        raise AccountingError(
            f"columns of no use here: {shown[:200]} · users' own words in them may pass for others' rows; {_ADVICE}"
        )

    def rows() -> Iterator[tuple[str, dict[str, str] | str]]:
        for number, line in enumerate(rest.split("\n"), 2):
            if not (line := line.strip("\r")):
                continue
            fields = line.split("|")[: -1 if ends else None]
            fits = len(fields) == len(columns)
            yield f"line {number}", dict(zip(columns, fields, strict=True)) if fits else "another number of fields"

    return _gathered(rows())


_ADVICE = (
    f"SLURM_TIME_FORMAT=%s sacct -a -X -D -P -o {','.join(COLUMNS)} writes what is needed, and so does sacct --json"
)


def of_fields(text: str, columns: tuple[str, ...], delimiter: str) -> Accounting:
    """`sacct --parsable --noheader` with a delimiter that nobody could foresee: then names may hold anything.

    Raises AccountingError where the fields do not come out even.
    """
    fields = text.split(delimiter)
    last = fields.pop()
    if last.strip() or len(fields) % len(columns):
        raise AccountingError("sacct's output was cut off or is not as it was asked for · ask again")

    def rows() -> Iterator[tuple[str, dict[str, str]]]:
        for number, at in enumerate(range(0, len(fields), len(columns)), 1):
            row = fields[at : at + len(columns)]
            yield f"job {number}", dict(zip(columns, [row[0].removeprefix("\n"), *row[1:]], strict=True))

    return _gathered(rows())


def _gathered(rows: Iterable[tuple[str, dict[str, str] | str]]) -> Accounting:
    """Each record once, in one order, whatever the order of the input."""
    jobs: dict[Key, Job] = {}
    problems, waiting = [], 0
    for where, row in rows:
        if isinstance(row, str):
            problems.append(f"{where}: {row}")
            continue
        if _STEP.fullmatch(row["JobIDRaw"]):
            continue
        try:
            job = _job(row)
        except ValueError as wrong:
            problems.append(f"{where}: {wrong}")
            continue
        if job is None:
            waiting += 1
            continue
        other = jobs.get(job.key)
        # The same allocation, read while it ran and after: what is known last holds.
        if other is None or (job.end_s or 0, job.model_dump_json()) > (other.end_s or 0, other.model_dump_json()):
            jobs[job.key] = job
    if len(problems) > PROBLEMS_SHOWN:
        more = len(problems) - PROBLEMS_SHOWN
        problems = [*problems[:PROBLEMS_SHOWN], f"and {more} more"]
    return Accounting(jobs=tuple(jobs[key] for key in sorted(jobs)), waiting=waiting, problems=tuple(problems))


def _job(row: Mapping[str, str]) -> Job | None:
    """A record as a job; None where it never started. Raises ValueError."""
    state = _STATE.match(row["State"])
    if not _JOB.fullmatch(row["JobIDRaw"]) or state is None:
        raise ValueError(f"no job id or no state: {row['JobIDRaw'][:40]!r}, {row['State'][:40]!r}")
    start, end = _time(row["Start"]), _time(row["End"])
    if start is None:
        return None
    if end is not None and end < start:
        raise ValueError(f"job {row['JobIDRaw']} ended before it started")
    tres = row["AllocTRES"]
    if not tres and end == start:
        return None  # cancelled in the queue: newer versions put both times there
    if not tres:
        raise ValueError(f"job {row['JobIDRaw']} ran, but what it was given is not known: AllocTRES is empty")
    eligible = _time(row.get("Eligible", "")) or _time(row.get("Submit", ""))
    return Job(
        id=row["JobIDRaw"],
        cluster=row.get("Cluster", ""),
        user=row["User"],
        account=row.get("Account", ""),
        partition=row["Partition"],
        name=row.get("JobName", ""),
        state=state[0],
        eligible_s=eligible if eligible is None or eligible <= start else None,
        start_s=start,
        end_s=end,
        suspended_s=_span(row.get("Suspended", "")),
        gpus=gpus(tres),
    )


def gpus(tres: str) -> dict[str, int]:
    """GPUs by model in a list of trackable resources: `cpu=8,gres/gpu=4,gres/gpu:h100=4`.

    The count without a model is that of all; what the models do not explain has the model "". Raises ValueError.
    """
    models: dict[str, int] = {}
    for each in tres.split(","):
        name, _, value = each.partition("=")
        if (gpu := _GPU.fullmatch(name)) is None:
            continue
        if not re.fullmatch(r"\d{1,7}", value) or int(value) > MOST_GPUS:
            raise ValueError(f"no count of GPUs: {each[:80]!r}")
        models[gpu["model"] or ""] = models.get(gpu["model"] or "", 0) + int(value)
    typed = sum(count for model, count in models.items() if model)
    models[""] = max(0, models.get("", 0) - typed)
    return {model: count for model, count in sorted(models.items()) if count}


def _time(text: str) -> int | None:
    if text in NEVER:
        return None
    if not re.fullmatch(r"\d{1,12}", text) or int(text) >= LATEST_S:
        if re.match(r"\d{4}-\d\d-\d\dT", text):
            raise ValueError(f"a time without its zone: {text[:40]} · run sacct with SLURM_TIME_FORMAT=%s")
        raise ValueError(f"no time: {text[:40]!r}")
    return int(text)


def _span(text: str) -> int:
    """Seconds of `1-02:03:04` or of a number."""
    if text in NEVER:
        return 0
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    if (found := _CLOCK.fullmatch(text)) is None:
        raise ValueError(f"no span of time: {text[:40]!r}")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _columns_of(record: Any) -> dict[str, str] | str:
    """A job of `sacct --json` by the names of the parsable columns."""
    if not isinstance(record, dict):
        return "no job"
    time, state = _inner(record, "time"), _inner(record, "state").get("current")
    allocated = _inner(record, "tres").get("allocated")
    if not isinstance(allocated, list):
        allocated = []
    return {
        "JobIDRaw": _number(record.get("job_id")),
        "Cluster": _text(record.get("cluster")),
        "User": _text(record.get("user")) or _text(_inner(record, "association").get("user")),
        "Account": _text(record.get("account")),
        "Partition": _text(record.get("partition")),
        "JobName": _text(record.get("name")),
        "State": _text(state[0] if isinstance(state, list) and state else state),
        "Submit": _number(time.get("submission")),
        "Eligible": _number(time.get("eligible")),
        "Start": _number(time.get("start")),
        "End": _number(time.get("end")),
        "Suspended": _number(time.get("suspended")),
        "AllocTRES": ",".join(_tres(each) for each in allocated if isinstance(each, dict)),
    }


def _tres(each: Mapping[str, Any]) -> str:
    kind, name = _text(each.get("type")), _text(each.get("name"))
    return f"{kind}/{name}={_number(each.get('count'))}" if name else f"{kind}={_number(each.get('count'))}"


def _inner(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = record.get(key)
    return inner if isinstance(inner, dict) else {}


def _text(value: Any) -> str:
    """A text that can be written again: JSON may hold halves of characters."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> str:
    """A number in digits; newer versions say beside it whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True and value.get("infinite") is not True else None
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    return str(value) if abs(value) < 1 << 63 else "too large"
