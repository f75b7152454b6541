"""What is read, found and answered: the shapes that go from one stage of a diagnosis to the next."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from validation.diagnose.kinds import Confidence, Retry, Symptom


class Line(NamedTuple):
    """A line of a log without its prefixes, and whose it is, where the line or its file says so."""

    file: str
    number: int
    """From 1."""
    text: str
    time: datetime | None
    rank: int | None
    node: str | None


@dataclass(frozen=True)
class Found:
    """A line in which a rule was found; `count` such lines of the same file and rank.

    It is the first of them, of lines of progress the last one; `first` and `last` are their times.
    """

    rule: str
    line: Line
    takes: dict[str, str]
    count: int
    last: datetime | None
    first: datetime | None = None
    until: int = 0
    """The number of the last of them; 0 where there is one."""


class _Answer(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )


class Evidence(_Answer):
    """A line that says so."""

    file: str
    line: int
    text: str = Field(max_length=400)
    time: datetime | None = None
    rank: int | None = None
    node: str | None = None
    count: int = 1
    """How many lines of this file say the same."""

    @property
    def where(self) -> str:
        """`job.log:7`; the file alone where no line of it says so by itself."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Cause(_Answer):
    """What happened and to whom, as far as the evidence names it."""

    kind: str
    """As rules have it; `unknown` where nothing that was read says why."""
    summary: str
    confidence: Confidence
    rule: str | None = None
    rank: int | None = None
    node: str | None = None
    gpu: str | None = None
    peer: str | None = None
    rail: str | None = None
    time: datetime | None = None
    evidence: tuple[Evidence, ...] = ()


class Step(_Answer):
    """How far a rank came: the last step that a line of it tells."""

    step: int
    file: str
    line: int
    time: datetime | None = None
    rank: int | None = None
    node: str | None = None


class Standing(_Answer):
    """Ranks of a job that ran when it was looked at and that stood at the same place."""

    ranks: tuple[int, ...]
    doing: str
    """In words; the collective or file system in brackets."""
    where: str = ""
    """The innermost frame of the program's own code: `train.py:42 step`."""
    states: str = ""
    """As /proc has them: R runs, S sleeps, D cannot be interrupted, T is stopped, t is traced, Z has ended."""
    wchans: tuple[str, ...] = ()
    """The kernel's functions that they sleep in."""
    first_step: int | None = None
    """The lowest of these ranks."""
    last_step: int | None = None
    cpu_percent: int | None = None
    """Mean of a rank while it was looked at; of one processor."""
    nodes: tuple[str, ...] = ()


class Read(_Answer):
    """What was looked at: what was not read cannot have been found."""

    files: int
    bytes: int
    lines: int
    ranks: tuple[int, ...] = ()
    """Those that a line was read of."""
    missing_ranks: tuple[int, ...] = ()
    """Those that others speak of, or that the world's size asks for, and that left no line."""
    left_out: tuple[str, ...] = ()
    """Files that could not be read, each with why."""


class Before(_Answer):
    """What the named node did to other jobs. It bears on whether to start again there, not on how sure the cause is."""

    node: str
    days: int
    """That were looked at."""
    jobs: int
    """Other jobs that died on it in these days."""
    same_kind: int
    """Of these, those that died of the same kind of cause."""
    last: datetime | None = None
    words: str = ""


class Diagnosis(_Answer):
    """The answer. `symptom` is none where nothing was found."""

    root_cause: Cause
    others: tuple[Cause, ...] = ()
    """What else could be the cause, most likely first: where there are any, `root_cause` is not certain."""
    consequences: tuple[Cause, ...] = ()
    measured: tuple[Evidence, ...] = ()
    """What metrics say that is clearly out of place, whether it is the cause or not."""
    symptom: Symptom | None = None
    checks: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    retry: Retry = Retry.UNKNOWN
    retry_why: str = ""
    before: Before | None = None
    """Where a history of nodes was given, and the cause names a node."""
    last_step: int | None = None
    """Of all ranks, the furthest."""
    last_steps: tuple[Step, ...] = ()
    """Each rank's, in their order; a file's where no rank is known."""
    standing: tuple[Standing, ...] = ()
    """Where ranks stood when a running job was looked at (`--live`), the smallest group first."""
    read: Read


def schema() -> dict[str, Any]:
    """The JSON schema of a diagnosis, as `muster diagnose --json` prints it: what is there, whatever is none."""
    made = Diagnosis.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
