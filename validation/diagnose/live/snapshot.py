"""What one node says of a running job: the shapes, and their reading from a file or a node's answer.

Snapshots come from nodes and from users: texts are cut and cleaned, lists and numbers have limits, nothing else passes.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from policies.evidence import write
from validation.diagnose.sources import SNAPSHOT, SourceError

KIND = "muster.snapshot"
VERSION = 1
LARGEST = 16 << 20
"""Bytes. A node of 16 ranks with 200 threads each is some 3 MB."""

MOST_RANKS = 256
"""Of one node."""
MOST_WORLD = 1_000_000
MOST_LOCAL = 10_000
MOST_LINKS = 256
MOST_THREADS = 512
MOST_FRAMES = 64


def _cut(longest: int) -> BeforeValidator:
    def cut(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return "".join(each if each.isprintable() else " " for each in value[:longest])

    return BeforeValidator(cut)


def _first(most: int) -> BeforeValidator:
    """What is beyond it is left out: a stack's outer end, a counter nobody knows."""
    return BeforeValidator(lambda value: value[:most] if isinstance(value, list | tuple) else value)


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


Word = Annotated[str, _cut(80)]
Text = Annotated[str, _cut(400)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[int, Field(ge=0, lt=MOST_WORLD)]
"""Of a rank."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Time = Annotated[datetime, AfterValidator(_in_utc)]
Counters = Annotated[dict[Word, Count], Field(max_length=400)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Frame(_Told):
    """Where a function stands."""

    name: Word
    file: Text
    line: Count = 0


class Thread(_Told):
    """One of a process, with its frames from the innermost outwards."""

    name: Word = ""
    main: bool = False
    interpreter: bool = False
    """Whether it holds the interpreter's lock."""
    frames: Annotated[tuple[Frame, ...], _first(MOST_FRAMES)] = ()


class Waits(_Told):
    """A thread or a child of a rank, and what it sleeps in."""

    name: Word = ""
    pid: Count = 0
    state: Word = ""
    wchan: Word = ""
    kernel_stack: Annotated[tuple[Word, ...], _first(32)] = ()


class Rank(_Told):
    """A rank's process."""

    rank: Number
    world: Annotated[int, Field(ge=1, lt=MOST_WORLD)] = 1
    local_rank: Number | None = None
    local_world: Annotated[int, Field(ge=1, lt=MOST_LOCAL)] | None = None
    pid: Count
    started: Time | None = None
    state: Annotated[str, Field(max_length=1)] = ""
    """As /proc has it: R runs, S sleeps, D cannot be interrupted, T is stopped, t is traced, Z has ended."""
    wchan: Word = ""
    kernel_stack: Annotated[tuple[Word, ...], _first(32)] = ()
    traced_by: Count = 0
    """The process that debugs it; 0 none."""
    cpu_s: Seconds | None = None
    """CPU time of all its threads within the interval."""
    threads: Annotated[tuple[Thread, ...], _first(MOST_THREADS)] = ()
    moved: bool | None = None
    """Whether its main thread stood elsewhere within the interval. None: its stack could not be read twice."""
    left: bool = False
    """Whether it was seen to leave a collective."""
    looks: Count = 0
    """How often its stack was read within the interval,"""
    waits: Count = 0
    """and how often it waited for others then."""
    step: Count | None = None
    step_before: Count | None = None
    """At the beginning of the interval."""
    exact_step: bool = False
    """Whether it counts each step: a metric does, a log's last line need not."""
    read_bytes: Count | None = None
    written_bytes: Count | None = None
    """By system calls, within the interval."""
    blocked: Annotated[tuple[Waits, ...], _first(64)] = ()
    """Its other threads that cannot be interrupted."""
    children: Annotated[tuple[Waits, ...], _first(128)] = ()
    """As workers that load data."""

    @property
    def main(self) -> Thread | None:
        """The main thread; none where no stack was read."""
        return next((each for each in self.threads if each.main), None)


class Gpu(_Told):
    """As NVML has it. `wrong`: why it does not answer."""

    name: Word
    busy_percent: Count | None = None
    memory_used_gib: Seconds | None = None
    memory_gib: Seconds | None = None
    clock_mhz: Count | None = None
    throttled: Annotated[tuple[Word, ...], _first(16)] = ()
    uncorrected: Count | None = None
    """Memory errors since its last reset."""
    wrong: Text = ""


class Link(_Told):
    """A port of the network. `rises`: its error counters that rose within the interval, and by how much."""

    name: Word
    kind: Literal["ethernet", "rdma"]
    up: bool
    was_up: bool = True
    """At some time since the node started: one that never was is not cabled."""
    counters: Counters = Field(default_factory=dict)
    """Of errors, those that are not 0."""
    rises: Counters = Field(default_factory=dict)


class RasRank(_Told):
    """A rank of a communicator, by NCCL's own count. `counts`: collectives that it launched, by name."""

    rank: Number
    host: Word = ""
    pid: Count = 0
    counts: Annotated[dict[Word, Count], Field(max_length=64)] = Field(default_factory=dict)
    async_error: int = 0
    """An ncclResult_t; 7 is `in progress`."""
    answers: bool = True
    dead: bool = False


class Communicator(_Told):
    """One of NCCL's. `size`: of all its ranks, also those that do not answer."""

    name: Word
    size: Count
    ranks: Annotated[tuple[RasRank, ...], Field(max_length=100_000)] = ()


class Ras(_Told):
    """What NCCL's RAS says of the whole job."""

    nccl: Word = ""
    communicators: Annotated[tuple[Communicator, ...], Field(max_length=4096)] = ()


class Snapshot(_Told):
    """One node at one time."""

    kind: Literal["muster.snapshot"] = "muster.snapshot"
    version: Literal[1] = 1
    node: Annotated[str, _cut(63), Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    job: Word = ""
    time: Time
    interval_s: Seconds = 0.0
    answered: bool = True
    """False: the node was asked and said nothing; `missed` has why."""
    asked: Count = 0
    """Nodes of the job that were asked; 0 where it is not known how many it has."""
    ranks: Annotated[tuple[Rank, ...], Field(max_length=MOST_RANKS)] = ()
    ended: Annotated[tuple[Waits, ...], _first(64)] = ()
    """Processes beside the ranks that have ended and that their parent did not bury."""
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    links: Annotated[tuple[Link, ...], Field(max_length=MOST_LINKS)] = ()
    ras: Ras | None = None
    kernel: Annotated[tuple[Text, ...], _first(2000)] = ()
    """Lines of the kernel's log with their time, the newest last."""
    unread: Count = 0
    """Processes that may be ranks and could not be looked at: a rank that is not seen need not be gone."""
    missed: Annotated[tuple[Text, ...], _first(1000)] = ()
    """What could not be collected, each with why."""

    @property
    def name(self) -> str:
        """Of its file; evidence is named by it whether it was saved or not."""
        return f"muster-snapshot-{self.node}.json"


def parse(raw: bytes, where: str) -> Snapshot:
    """A node's answer. Raises SourceError."""
    if len(raw) > LARGEST:
        raise SourceError(f"{where}: larger than {LARGEST >> 20} MiB · it is no snapshot")
    try:
        return Snapshot.model_validate_json(raw)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"])) or "it"
        raise SourceError(
            f"{where}: no snapshot of version {VERSION}: {at}: {first['msg']}"[:400]
            + " · take it again with this version of muster"
        ) from None


def read(path: Path) -> Snapshot:
    """A saved snapshot. Raises SourceError."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as wrong:
        raise SourceError(f"{path}: {wrong.strerror} · leave it out, or mend its permissions") from None
    return parse(raw, str(path))


def save(snapshots: Iterable[Snapshot], folder: Path) -> list[Path]:
    """Writes each into its file, readable by nobody else than owner and group. Raises SourceError."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in snapshots:
            path = folder / each.name
            assert SNAPSHOT.search(path.name)  # noqa: S101 (or it would not be read again)
            write(path, each.model_dump_json(indent=1), mode=0o640)
            written.append(path)
    except OSError as wrong:
        raise SourceError(f"{folder}: {wrong.strerror} · give a folder that can be written") from None
    return written
