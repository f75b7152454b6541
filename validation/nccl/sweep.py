"""From what the ranks printed to a judged sweep. Pure; the streams come from nodes and are hostile."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from policies.fabric import REPEATS, Sweep, SweepPoint
from validation.nccl.formulas import bandwidth, plateau

LINES = 10_000
"""Records that one rank may print: more is a flood, not a result."""


ELEMENT = 4
"""Bytes of an element: float32."""

MOST = 2**53
"""The largest number that a rank may tell, whatever it counts: more is not to be believed, and breaks arithmetic."""
SHORTEST_S = 1e-9
"""Seconds that no call is shorter than."""

Backend: TypeAlias = Literal["nccl", "gloo"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Start(_Record):
    """A rank has joined."""

    record: Literal["start"]
    rank: Annotated[int, Field(ge=0)]
    ranks: Annotated[int, Field(ge=1)]
    backend: Backend
    device: Literal["cuda", "cpu"]
    torch: Annotated[str, Field(max_length=80)]
    nccl: Annotated[str, Field(max_length=40)] | None = None


class Timing(_Record):
    """One repeat of one operation at one size."""

    record: Literal["point"]
    op: Annotated[str, Field(max_length=40)]
    size: Annotated[int, Field(gt=0, le=MOST)]
    repeat: Annotated[int, Field(ge=0, le=MOST)]
    seconds: Annotated[float, Field(ge=SHORTEST_S, le=MOST)]
    wrong: Annotated[int, Field(ge=0, le=MOST)]


class End(_Record):
    """A rank has done all its work."""

    record: Literal["end"]
    rank: Annotated[int, Field(ge=0)]


_RECORD: TypeAdapter[Start | Timing | End] = TypeAdapter(Annotated[Start | Timing | End, Field(discriminator="record")])


class Stream(BaseModel):
    """What one rank said, and how its process ended."""

    model_config = ConfigDict(frozen=True)

    node: str
    rank: int
    output: str
    problem: str | None = None
    """Why the process did not end well: exit status with its last words, time limit, unreachable."""


class Asked(BaseModel):
    """What the job was asked to do, and what counts as good."""

    model_config = ConfigDict(frozen=True)

    backend: Backend
    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    repeats: Annotated[int, Field(ge=REPEATS)]
    rail: int | None
    floors: Mapping[str, float]
    """The least plateau busbw of each operation, GB/s."""
    floor_source: str
    plateau_from: int
    """Bytes from which on a size belongs to the plateau."""


def records(stream: Stream) -> tuple[list[Start | Timing | End], list[str]]:
    """A rank's records, and what is wrong with its output. Lines that are no records are what libraries print."""
    found: list[Start | Timing | End] = []
    problems = [f"rank {stream.rank} on {stream.node}: {stream.problem}"] if stream.problem else []
    lines = stream.output.splitlines()
    if len(lines) > LINES:
        return [], [*problems, f"rank {stream.rank} on {stream.node} printed {len(lines)} lines, more than {LINES}"]
    for line in lines:
        if not line.startswith('{"record"'):
            continue
        try:
            found.append(_RECORD.validate_python(json.loads(line)))
        except (ValueError, ValidationError, RecursionError):
            problems.append(f"rank {stream.rank} on {stream.node} printed a record that cannot be read")
    return found, problems


def sweeps(asked: Asked, streams: Sequence[Stream]) -> tuple[Sweep, ...]:
    """A sweep for each operation that was asked for.

    A sweep has a `reason`, and so is no pass, where any rank is missing or did not finish, or a size lacks a repeat:
    a partial sweep is never judged.
    """
    said = [records(stream) for stream in streams]
    problems = [problem for _, lines in said for problem in lines]
    starts, ends = [], set()
    timings: dict[str, dict[int, list[Timing]]] = defaultdict(lambda: defaultdict(list))
    for stream, (found, _) in zip(streams, said, strict=True):
        mine = [each for each in found if isinstance(each, Start) and each.rank == stream.rank]
        if len(mine) != 1 or mine[0].ranks != len(streams):
            problems.append(f"rank {stream.rank} on {stream.node} did not join")
        starts += mine
        if any(isinstance(each, End) and each.rank == stream.rank for each in found):
            ends.add(stream.rank)
        elif not stream.problem:
            problems.append(f"rank {stream.rank} on {stream.node} did not finish")
        if stream.rank == 0:
            for each in found:
                if isinstance(each, Timing):
                    timings[each.op][each.size].append(each)
    if len({(start.backend, start.device) for start in starts}) > 1:
        problems.append("ranks ran on different backends")
    if others := sorted({start.backend for start in starts} - {asked.backend}):
        problems.append(f"ran on {', '.join(others)}, {asked.backend} was asked for")
    first = starts[0] if starts else None
    nodes = tuple(dict.fromkeys(stream.node for stream in streams))
    return tuple(
        _sweep(asked, op, timings[op], first, len(streams), nodes, "; ".join(problems[:5])) for op in asked.ops
    )


def _sweep(
    asked: Asked,
    op: str,
    timings: Mapping[int, list[Timing]],
    start: Start | None,
    ranks: int,
    nodes: tuple[str, ...],
    problem: str,
) -> Sweep:
    if not problem and ranks < 2:
        problem = f"{ranks} rank: a collective's bandwidth needs at least 2"
    if not problem:
        problem = _gaps(asked, timings, ranks)
    points = [] if problem else [_point(op, size, timings[size], ranks) for size in sorted(timings)]
    return Sweep(
        op=op,
        backend=start.backend if start else "none",
        rail=asked.rail,
        ranks=max(1, ranks),
        nodes=nodes,
        points=tuple(points),
        plateau=plateau([(point.bytes, point.busbw) for point in points], asked.plateau_from - ELEMENT * ranks + 1),
        floor=asked.floors[op],
        floor_source=asked.floor_source,
        reason=problem,
    )


def _gaps(asked: Asked, timings: Mapping[int, list[Timing]], ranks: int) -> str:
    """What is missing of an operation's timings; empty where nothing is.

    An operation that deals its elements out to ranks leaves out those that do not divide: fewer than one a rank.
    """
    if len(timings) != len(asked.sizes):
        return f"{len(timings)} of {len(asked.sizes)} sizes were measured"
    for wanted, size in zip(sorted(asked.sizes), sorted(timings), strict=True):
        if not 0 <= wanted - size < ELEMENT * ranks:
            return f"{size} bytes were measured, {wanted} were asked for"
    for size, got in timings.items():
        if sorted(each.repeat for each in got) != list(range(asked.repeats)):
            return f"{len(got)} of {asked.repeats} repeats at {size} bytes"
    return ""


def _point(op: str, size: int, timings: Sequence[Timing], ranks: int) -> SweepPoint:
    algorithm, bus = bandwidth(op, size, median(each.seconds for each in timings), ranks)
    wrong = sum(each.wrong for each in timings)
    return SweepPoint(bytes=size, algbw=algorithm, busbw=bus, wrong=wrong, repeats=len(timings))
