"""Reading pieces back: several chunks ahead, over the ends of pieces too; each piece is checked before it is given."""

import contextlib
import mmap
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from runtime.checkpoint.crypt import Sealer
from runtime.checkpoint.format import CheckpointError, Piece, TornError
from runtime.checkpoint.storage import StalledError, Started, Storage
from runtime.checkpoint.writing import BLOCK_BYTES, CHUNK_BYTES, DEPTH, address


class _Chunk(NamedTuple):
    number: int
    at: int
    view: memoryview
    call: Started[None]


class Reader:
    """An open data file of a checkpoint. Raises StorageError, TornError where it is missing."""

    def __init__(self, storage: Storage, path: Path, sealer: Sealer | None, direct: bool = False) -> None:
        """`direct`: past the page cache where a chunk allows it; for a file that nobody else here reads."""
        self._storage, self._path, self._sealer = storage, path, sealer
        self._ahead: deque[_Chunk] = deque()
        self._fds = storage.do("open the file", path, lambda: _open(path, direct))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        # What was read ahead of an error must not arrive in the caller's buffer later. A descriptor on which a call
        # hangs stays open: its number must not come to mean another file.
        for chunk in self._ahead:
            try:
                chunk.call.result()
            except StalledError:
                return
            except CheckpointError:
                pass
        self._storage.do("close the file", self._path, self._close)

    def _close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def check(self, pieces: Sequence[Piece]) -> None:
        """Raises TornError where the stored bytes are not those that were written."""
        for _ in self._checked(pieces, [None] * len(pieces)):
            pass

    def read(self, wanted: Sequence[tuple[Piece, memoryview | None]]) -> list[memoryview]:
        """The boxes' bytes, each in the buffer that is given for it (writable, of exactly `piece.plain_bytes`).

        Raises TornError where they are not those that were written: the buffers then hold nothing of use.
        """
        pieces = [piece for piece, _ in wanted]
        targets = [self._target(piece, into) for piece, into in wanted]
        if self._sealer is None:
            for _ in self._checked(pieces, targets):
                pass
            return targets
        filled = [0] * len(targets)
        for chunk in self._checked(pieces, [None] * len(pieces)):
            piece, target, start = pieces[chunk.number], targets[chunk.number], filled[chunk.number]
            try:
                plain = self._sealer.unseal(chunk.view, chunk.at)
            except TornError:
                raise self._damaged(piece) from None
            end = start + len(plain)
            if end > target.nbytes or (chunk.at + len(chunk.view) == piece.at + piece.size and end != target.nbytes):
                raise self._damaged(piece)
            target[start:end] = plain
            filled[chunk.number] = end
        return targets

    def _target(self, piece: Piece, into: memoryview | None) -> memoryview:
        if self._sealer is None and piece.size != piece.plain_bytes:
            raise self._damaged(piece)
        if into is None:
            return memoryview(bytearray(piece.plain_bytes))
        if into.nbytes != piece.plain_bytes:
            raise ValueError(f"{piece.name}: a buffer of {into.nbytes} bytes for {piece.plain_bytes}")
        return into.cast("B") if into.nbytes else memoryview(bytearray())

    def _checked(self, pieces: Sequence[Piece], targets: Sequence[memoryview | None]) -> Iterator[_Chunk]:
        """The chunks in order; a piece's hash is checked with its last."""
        digest: Any = blake3()
        for chunk in self._chunks(pieces, targets):
            piece = pieces[chunk.number]
            if chunk.at == piece.at:
                digest = blake3()
            digest.update(chunk.view)
            if chunk.at + len(chunk.view) == piece.at + piece.size and digest.hexdigest() != piece.hash:
                raise self._damaged(piece)
            yield chunk

    def _chunks(self, pieces: Sequence[Piece], targets: Sequence[memoryview | None]) -> Iterator[_Chunk]:
        """Reads ahead, into the targets, or into buffers in turn where there is none."""
        spare: list[memoryview] = []
        for number, (piece, target) in enumerate(zip(pieces, targets, strict=True)):
            for at in range(piece.at, piece.at + piece.size, CHUNK_BYTES):
                length, start = min(CHUNK_BYTES, piece.at + piece.size - at), at - piece.at
                if target is not None:
                    view = target[start : start + length]
                else:
                    view = (spare.pop() if spare else memoryview(mmap.mmap(-1, CHUNK_BYTES)))[:length]
                self._ahead.append(_Chunk(number, at, view, self._start(view, at)))
                if len(self._ahead) > DEPTH:
                    yield from self._next(targets, spare)
        while self._ahead:
            yield from self._next(targets, spare)

    def _next(self, targets: Sequence[memoryview | None], spare: list[memoryview]) -> Iterator[_Chunk]:
        chunk = self._ahead[0]
        chunk.call.result()
        self._ahead.popleft()
        yield chunk
        if targets[chunk.number] is None:
            spare.append(memoryview(chunk.view.obj))

    def _start(self, view: memoryview, at: int) -> Started[None]:
        fds, path = self._fds, self._path
        return self._storage.start("read the file", path, lambda: _read_at(fds, view, at, path))

    def _damaged(self, piece: Piece) -> TornError:
        return TornError(
            f"{piece.name} at byte {piece.at} of {self._path}: its bytes are not those that were written · "
            "use an older checkpoint"
        )


def _open(path: Path, direct: bool) -> tuple[int, ...]:
    """A descriptor, and where there can be one, a second that reads past the page cache."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise TornError(f"{path} is missing · use an older checkpoint") from None
    if direct:
        with contextlib.suppress(OSError):
            return fd, os.open(path, flags | os.O_DIRECT)
    return (fd,)


def _read_at(fds: tuple[int, ...], view: memoryview, at: int, path: Path) -> None:
    fd, *direct = fds
    if direct and not at % BLOCK_BYTES and not address(view) % BLOCK_BYTES:
        blocks = len(view) // BLOCK_BYTES * BLOCK_BYTES
        # The rest, and all of it where the file system refuses, goes the usual way.
        with contextlib.suppress(OSError):
            done = os.preadv(direct[0], [view[:blocks]], at)
            view, at = view[done:], at + done
    while view:
        done = os.preadv(fd, [view], at)
        if not done:
            raise TornError(f"{path} ends at byte {at}, before its last piece · use an older checkpoint")
        view, at = view[done:], at + done
