"""What a checkpoint is on disk: pieces of global arrays in one file a rank, and a manifest that names every one. Pure.

    FOLDER/
      step-000000000150/            committed: whole, or it would not have this name
        manifest.json
        rank-00000.4f1c09aa.data    pieces one after another
      .step-000000000300.ATTEMPT.0/ being written: no reader looks inside
        rank-00000.9be01c77.data, rank-00000.part
      quarantined/                  what did not verify, with the reason
      latest                        a name, for people: readers look at what is there
      lease-00000007                who writes here

Documents (manifest, part) are a line that says the format and the body's size and hash, and the body: JSON, or sealed.
"""

import gc
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Self, TypeVar

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from runtime.checkpoint.boxes import tiles

FORMAT = 1
"""The format this code writes, and the newest it reads."""

MOST_BODY_BYTES = 1 << 30
MOST_HEAD_BYTES = 4096
MOST_DIMENSIONS = 64
MOST_PIECE_BYTES = 1 << 48

ITEM_BYTES = {
    "bool": 1,
    **{f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": bits // 8 for bits in (16, 32, 64)},
    **{f"complex{bits}": bits // 8 for bits in (32, 64, 128)},
    "bfloat16": 2,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    "float4_e2m1fn_x2": 1,
}
"""Bytes of an element by its type's name, as torch and NumPy write it."""


class CheckpointError(Exception):
    """Something about a checkpoint is not as it must be. The text says what, where, and what to do."""


class TornError(CheckpointError):
    """What is on disk is not what its manifest says, or there is no readable manifest. Never to be resumed from."""


class NewerFormatError(CheckpointError):
    """Written by a newer version: intact for all that is known, and not readable here. Never to be quarantined."""


Name = Annotated[str, Field(min_length=1, max_length=1024)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
File = Annotated[str, Field(pattern=r"^rank-[0-9]{5,9}\.[0-9a-f]{8}\.data$")]
Attempt = Annotated[str, Field(min_length=1, max_length=200)]
Step = Annotated[int, Field(ge=0, lt=10**12)]
Count = Annotated[int, Field(ge=0, le=MOST_PIECE_BYTES)]
Box = Annotated[tuple[Count, ...], Field(max_length=MOST_DIMENSIONS)]


class _Record(BaseModel):
    # A scheduler's best loss so far is infinite at first: it must not come back as none.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


D = TypeVar("D", bound=_Record)


class Piece(_Record):
    """A box of the global array `name`, and where its bytes lie: C order, little-endian.

    `shape` is the whole array's, `offset` and `extent` the box's, all of as many dimensions. `at` and `size` are bytes
    in `file`; `hash` is BLAKE3 of those bytes as they are stored, which with a key are the sealed ones.
    """

    name: Name
    dtype: str
    shape: Box
    offset: Box
    extent: Box
    file: File
    at: Count
    size: Count
    hash: Hash

    @property
    def plain_bytes(self) -> int:
        """Bytes of the box in memory."""
        return math.prod(self.extent) * ITEM_BYTES[self.dtype]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if why := misfit(self.dtype, self.shape, self.offset, self.extent):
            raise ValueError(f"piece of {self.name}: {why}")
        if self.size < self.plain_bytes:
            raise ValueError(f"piece of {self.name}: {self.size} bytes cannot hold {self.plain_bytes}")
        return self


def misfit(dtype: str, shape: Sequence[int], offset: Sequence[int], extent: Sequence[int]) -> str:
    """Why these are no box of such an array; empty where they are."""
    if dtype not in ITEM_BYTES:
        return f"unknown type {dtype!r}"
    if not len(shape) == len(offset) == len(extent):
        return f"shape {list(shape)}, offset {list(offset)} and extent {list(extent)} differ in dimensions"
    for whole, begin, long in zip(shape, offset, extent, strict=True):
        if begin < 0 or long < 0 or begin + long > whole:
            return f"the box at {list(offset)} of {list(extent)} is outside an array of {list(shape)}"
    if math.prod(shape) * ITEM_BYTES[dtype] > MOST_PIECE_BYTES:
        return f"an array of {list(shape)} is larger than {MOST_PIECE_BYTES} bytes"
    return ""


class Part(_Record):
    """What one rank wrote: its file of `size` bytes, the pieces in it, and values of its own (random state, position).

    `salt` is of the file's own key where there is one, else empty.
    """

    rank: Annotated[int, Field(ge=0)]
    step: Step
    attempt: Attempt
    file: File
    size: Count
    salt: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    pieces: tuple[Piece, ...] = ()
    values: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _holds(self) -> Self:
        end = 0
        for piece in self.pieces:
            if piece.file != self.file or piece.at < end or piece.at + piece.size > self.size:
                raise ValueError(f"rank {self.rank}: a piece of {piece.name} is not in its place in {self.file}")
            end = piece.at + piece.size
        return self


class Manifest(_Record):
    """A committed checkpoint. `folder` is the name of its own folder; `world` is how many ranks trained.

    `whole`: the parts hold every element of every array once. A node's own tier holds only its ranks' parts.
    `values` are the job's (as step and consumed samples), each part's are its rank's.
    """

    format: int = FORMAT
    step: Step
    folder: Annotated[str, Field(pattern=r"^step-[0-9]{12}(\.[0-9]{1,6})?$")]
    attempt: Attempt
    world: Annotated[int, Field(ge=1)]
    whole: bool = True
    spec_digest: Annotated[str, Field(max_length=200)] = ""
    image_digest: Annotated[str, Field(max_length=200)] = ""
    created: datetime
    config: dict[str, JsonValue] = Field(default_factory=dict)
    metric: float | None = None
    values: dict[str, JsonValue] = Field(default_factory=dict)
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]

    def part(self, rank: int) -> Part:
        """What a rank wrote. Raises LookupError where it wrote none."""
        for each in self.parts:
            if each.rank == rank:
                return each
        raise LookupError(f"step {self.step}: rank {rank} wrote no part")

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, by rank."""
        return tuple(piece for part in self.parts for piece in part.pieces)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the ranks' files."""
        return sum(part.size for part in self.parts)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        ranks = [part.rank for part in self.parts]
        if sorted(set(ranks)) != ranks or ranks[-1] >= self.world:
            raise ValueError(f"parts of ranks {ranks[:9]} in a world of {self.world}")
        for part in self.parts:
            if part.step != self.step or part.attempt != self.attempt:
                raise ValueError(f"rank {part.rank}'s part is of step {part.step}, attempt {part.attempt}")
        if step_of(self.folder) != self.step:
            raise ValueError(f"folder {self.folder} is not of step {self.step}")
        if why := contradiction(self.pieces, whole=self.whole):
            raise ValueError(why)
        return self


def contradiction(pieces: Sequence[Piece], *, whole: bool) -> str:
    """Why the pieces do not make up arrays: types or shapes that differ, or not every element once. Or empty."""
    arrays: dict[str, list[Piece]] = {}
    for piece in pieces:
        arrays.setdefault(piece.name, []).append(piece)
    for name, boxes in arrays.items():
        if len({(box.dtype, box.shape) for box in boxes}) > 1:
            return f"{name}: its pieces disagree about the array's type or shape"
        if whole and not tiles(boxes[0].shape, [(box.offset, box.extent) for box in boxes]):
            return f"{name}: its {len(boxes)} pieces do not hold every element of {list(boxes[0].shape)} once"
    return ""


def step_name(step: int, again: int = 0) -> str:
    """The folder of a step's `again`-th commit after its first: a committed folder is never written to again."""
    return f"step-{step:012d}" + (f".{again}" if again else "")


def step_of(name: str) -> int | None:
    """The step of a committed folder's name; none for another name."""
    found = re.fullmatch(r"step-(\d{12})(?:\.\d{1,6})?", name, re.ASCII)
    return int(found[1]) if found else None


def again_of(name: str) -> int:
    """Which commit of its step a committed folder is."""
    return int(name.partition(".")[2] or 0)


def record(model: type[D], where: str, **fields: Any) -> D:
    """A record of our own making. Raises CheckpointError where the caller's values are none that can be kept."""
    try:
        return model(**fields)
    except ValidationError as wrong:
        raise CheckpointError(f"{where}: {_first(wrong)} · nothing is committed") from None


def _first(wrong: ValidationError) -> str:
    first = wrong.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(each) for each in first["loc"][:4])
    return f"{place}: {first['msg']}" if place else first["msg"]


class _Head(BaseModel):
    model_config = ConfigDict(frozen=True)

    muster: str
    format: int
    size: Count
    hash: Hash
    key: str = ""


def pack(record: BaseModel, kind: str, key: str = "", seal: Any = None) -> bytes:
    """A document: head line and body. `seal` turns the body's bytes into sealed ones, `key` names with which key."""
    body = record.model_dump_json().encode()
    body = seal(body) if seal else body
    head = _Head(muster=kind, format=FORMAT, size=len(body), hash=blake3(body).hexdigest(), key=key)
    return head.model_dump_json().encode() + b"\n" + body


def head_key(raw: bytes, where: str) -> str:
    """Which key a document is sealed with; empty where it is not. Raises as `unpack`."""
    return _head(raw, where)[0].key


def unpack(raw: bytes, model: type[D], kind: str, where: str, unseal: Any = None) -> D:
    """The record of a document. Raises TornError unless it is one and whole, NewerFormatError for a newer one."""
    head, body = _head(raw, where)
    if head.muster != kind:
        raise TornError(f"{where} is a {head.muster[:40]!r}, not a {kind} · it was moved or renamed")
    if len(body) != head.size or blake3(body).hexdigest() != head.hash:
        raise TornError(f"{where} is cut off or damaged: its body is not what its head says · use an older checkpoint")
    if head.key:
        if unseal is None:
            raise CheckpointError(f"{where} is sealed with key {head.key[:40]} · give the runtime that key")
        body = unseal(body)
    try:
        with uncollected():
            return model.model_validate_json(body)
    except ValidationError as wrong:
        raise TornError(f"{where} contradicts itself: {_first(wrong)} · use an older checkpoint") from None


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection, which looks at all objects again and again while many are made that all stay."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _head(raw: bytes, where: str) -> tuple[_Head, bytes]:
    line, found, _ = raw[:MOST_HEAD_BYTES].partition(b"\n")
    try:
        told = json.loads(line)
        version = told["format"]
        known = isinstance(version, int) and not isinstance(version, bool) and isinstance(told["muster"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not found or not known:
        raise TornError(f"{where} does not begin with the line of a document · use an older checkpoint")
    if version > FORMAT:
        raise NewerFormatError(
            f"{where} has format {version}, this version reads up to {FORMAT} · resume with the version that wrote it"
        )
    try:
        return _Head.model_validate(told), raw[len(line) + 1 :]
    except ValidationError:
        raise TornError(f"{where} begins with a line that is not complete · use an older checkpoint") from None
