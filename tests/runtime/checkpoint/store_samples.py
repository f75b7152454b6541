"""A small checkpoint whose bytes tell its step, saved by two ranks, and what a reader must find of it."""

import hashlib
from collections.abc import Iterable

from runtime.checkpoint.format import Manifest
from runtime.checkpoint.tier import Blob, Tier
from runtime.place import Place

WORLD = 2
ROWS, COLUMNS = 6, 500


def weights(step: int) -> bytes:
    """The array `w`, ROWS × COLUMNS of uint8."""
    return hashlib.shake_256(str(step).encode()).digest(ROWS * COLUMNS)


def blobs(step: int, rank: int) -> Iterable[Blob]:
    """Rank's half of `w`; on rank 0 also a number, and an array with nothing in it."""
    half = ROWS // WORLD
    own = weights(step)[rank * half * COLUMNS : (rank + 1) * half * COLUMNS]
    yield Blob("model.w", "uint8", (ROWS, COLUMNS), (rank * half, 0), (half, COLUMNS), own)
    if rank == 0:
        yield Blob("optim.step", "int64", (), (), (), step.to_bytes(8, "little"))
        yield Blob("empty", "float32", (0, 3), (0, 0), (0, 3), b"")


def place(rank: int, attempt: str = "a.0") -> Place:
    """One of the two ranks."""
    return Place(rank=rank, world=WORLD, attempt=attempt)


def write(tier: Tier, step: int, turn: int = 0, content: int | None = None) -> None:
    """Both ranks' parts."""
    for rank in range(WORLD):
        tier.begin(step, place(rank), turn).write(
            blobs(step if content is None else content, rank), {"seed": step + rank}
        )


def save(tier: Tier, step: int, turn: int = 0, content: int | None = None) -> Manifest:
    """A committed checkpoint, with the bytes of step `content` where that is given."""
    write(tier, step, turn, content)
    return tier.commit(step, place(0), 5.0, turn=turn, values={"content": step if content is None else content})


def found(tier: Tier, step: int) -> int:
    """Of which step the verified content is. Raises as `verify`; AssertionError where it is a mixture."""
    manifest = tier.verify(step)
    content = manifest.values["content"]
    assert isinstance(content, int)
    array = bytearray(ROWS * COLUMNS)
    for piece, read in zip(
        manifest.pieces, tier.read_all(manifest, [(each, None) for each in manifest.pieces]), strict=True
    ):
        if piece.name == "model.w":
            start = piece.offset[0] * COLUMNS
            array[start : start + len(read)] = read
        elif piece.name == "optim.step":
            assert int.from_bytes(read, "little") == content
    assert array == weights(content)
    assert [part.values for part in manifest.parts] == [{"seed": step + rank} for rank in range(WORLD)]
    return content
