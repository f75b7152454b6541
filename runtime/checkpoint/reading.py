"""Reading pieces back: several chunks ahead, each piece checked against its hash before anybody gets it."""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from runtime.checkpoint.crypt import Sealer
from runtime.checkpoint.format import CheckpointError, Piece, TornError
from runtime.checkpoint.storage import StalledError, Started, Storage
from runtime.checkpoint.writing import CHUNK_BYTES, DEPTH


class Reader:
    """An open data file of a checkpoint. Raises StorageError, TornError where it is missing."""

    def __init__(self, storage: Storage, path: Path, sealer: Sealer | None) -> None:
        self._storage, self._path, self._sealer = storage, path, sealer
        self._ahead: deque[tuple[int, memoryview, Started[None]]] = deque()
        self._fd = storage.do("open the file", path, lambda: _open(path))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        # What was read ahead of an error must not arrive in the caller's buffer later. A descriptor on which a call
        # hangs stays open: its number must not come to mean another file.
        for call in [each[2] for each in self._ahead]:
            try:
                call.result()
            except StalledError:
                return
            except CheckpointError:
                pass
        self._storage.do("close the file", self._path, lambda: os.close(self._fd))

    def check(self, piece: Piece) -> None:
        """Raises TornError where the stored bytes are not those that were written."""
        digest = blake3()
        for _, chunk in self._chunks(piece, None):
            digest.update(chunk)
        self._same(piece, digest.hexdigest())

    def read(self, piece: Piece, into: memoryview | None = None) -> memoryview:
        """The box's bytes, in `into` where it is given (writable, of exactly `piece.plain_bytes`).

        Raises TornError where they are not those that were written: `into` then holds nothing of use.
        """
        target = memoryview(bytearray(piece.plain_bytes)) if into is None else into.cast("B")
        if target.nbytes != piece.plain_bytes:
            raise ValueError(f"{piece.name}: a buffer of {target.nbytes} bytes for {piece.plain_bytes}")
        digest = blake3()
        if self._sealer is None:
            if piece.size != piece.plain_bytes:
                raise TornError(f"{piece.name} in {self._path}: {piece.size} bytes, not {piece.plain_bytes}")
            for _, chunk in self._chunks(piece, target):
                digest.update(chunk)
        else:
            filled = 0
            for at, chunk in self._chunks(piece, None):
                digest.update(chunk)
                try:
                    plain = self._sealer.unseal(chunk, at)
                except TornError:
                    raise self._damaged(piece) from None
                if filled + len(plain) > target.nbytes:
                    raise TornError(f"{piece.name} in {self._path}: more bytes than the box holds")
                target[filled : filled + len(plain)] = plain
                filled += len(plain)
            if filled != target.nbytes:
                raise TornError(f"{piece.name} in {self._path}: {filled} bytes, not {target.nbytes}")
        self._same(piece, digest.hexdigest())
        return target

    def _same(self, piece: Piece, found: str) -> None:
        if found != piece.hash:
            raise self._damaged(piece)

    def _damaged(self, piece: Piece) -> TornError:
        return TornError(
            f"{piece.name} at byte {piece.at} of {self._path}: its bytes are not those that were written · "
            "use an older checkpoint"
        )

    def _chunks(self, piece: Piece, target: memoryview | None) -> Iterator[tuple[int, memoryview]]:
        """Place and bytes of each chunk, in order, read ahead: into the target, or into buffers in turn."""
        spare = (
            [memoryview(bytearray(min(CHUNK_BYTES, piece.size))) for _ in range(DEPTH + 1)] if target is None else []
        )
        for at in range(piece.at, piece.at + piece.size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, piece.at + piece.size - at)
            start = at - piece.at
            view = spare.pop()[:length] if target is None else target[start : start + length]
            self._ahead.append((at, view, self._start(view, at)))
            if len(self._ahead) > DEPTH:
                yield from self._next(spare)
        while self._ahead:
            yield from self._next(spare)

    def _start(self, view: memoryview, at: int) -> Started[None]:
        fd, path = self._fd, self._path
        return self._storage.start("read the file", path, lambda: _read_at(fd, view, at, path))

    def _next(self, spare: list[memoryview]) -> Iterator[tuple[int, memoryview]]:
        at, view, call = self._ahead[0]
        call.result()
        self._ahead.popleft()
        yield at, view
        spare.append(memoryview(view.obj))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise TornError(f"{path} is missing · use an older checkpoint") from None


def _read_at(fd: int, view: memoryview, at: int, path: Path) -> None:
    while view:
        done = os.preadv(fd, [view], at)
        if not done:
            raise TornError(f"{path} ends at byte {at}, before its last piece · use an older checkpoint")
        view, at = view[done:], at + done
