"""One rank's file: pieces streamed into it, hashed and if asked sealed on the way, past the page cache.

Writing through the page cache is bound by how fast the kernel writes back (283 MB/s where O_DIRECT does 1.2 GB/s, ext4
on one virtual disk), and evicts what the training's data loader keeps there.
"""

import contextlib
import errno
import math
import mmap
import os
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from blake3 import blake3
from pydantic import JsonValue

from runtime.checkpoint.crypt import SALT_BYTES, TAG_BYTES, Key, Sealer
from runtime.checkpoint.format import ITEM_BYTES, CheckpointError, Part, Piece, misfit, pack, record
from runtime.checkpoint.storage import StalledError, Started, Storage, StorageError
from runtime.events import Tell
from runtime.place import Place

CHUNK_BYTES = 8 << 20
"""Bytes of one write. With a key, a chunk on disk is this long too, and holds TAG_BYTES less."""

DEPTH = 4
"""Chunks being written at once: device and network are kept busy while the next are hashed."""

BLOCK_BYTES = 4096
"""What O_DIRECT asks of lengths and places on every common device."""

LARGE_BYTES = 1 << 18
"""From here on a piece is worth a thread of its own for its hash."""

IN_PLACE_BYTES = 4 << 20
"""From here on lasting bytes are written from where they are. A smaller piece is worth less than the padding and the
short write before it."""

ALIGN_BYTES = 64


@dataclass(frozen=True)
class Blob:
    """A box of a global array, as `Piece`, with its bytes: C order, little-endian, contiguous.

    They may change again as soon as `Writing.write` has asked for the next Blob; those that are `lasting` only when it
    has returned, and what begins on a page of memory then needs no copy.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    data: bytes | bytearray | memoryview
    lasting: bool = False


class Writing:
    """A rank's share of a checkpoint under way, in a folder that no reader looks into."""

    def __init__(self, storage: Storage, folder: Path, step: int, place: Place, key: Key | None, tell: Tell) -> None:
        self.folder = folder
        self._storage, self._step, self._place, self._key, self._tell = storage, step, place, key, tell

    def write(self, pieces: Iterable[Blob], values: Mapping[str, JsonValue]) -> Part:
        """Writes all and makes it last. What an earlier try left counts for nothing; no file of it is written again.

        Raises StorageError where storage failed, CheckpointError for a Blob that is no box of its array.
        """
        started = time.monotonic()
        self._storage.make_folder(self.folder)
        self._storage.sync_folder(self.folder.parent)
        name = f"rank-{self._place.rank:05d}.{secrets.token_hex(4)}.data"
        salt = secrets.token_bytes(SALT_BYTES) if self._key else b""
        stream = Stream(self._storage, self.folder / name, self._key.file(salt) if self._key else None)
        try:
            placed = tuple(self._place_of(blob, name, *stream.add(_flat(blob), blob.lasting)) for blob in pieces)
            size = stream.finish()
        except BaseException as wrong:
            stream.abandon(hangs=isinstance(wrong, StalledError))
            raise
        part = record(
            Part,
            name,
            rank=self._place.rank,
            step=self._step,
            attempt=self._place.attempt,
            file=name,
            size=size,
            salt=salt.hex(),
            pieces=placed,
            values=dict(values),
        )
        key = self._key
        raw = pack(part, "part", key.id if key else "", key.seal if key else None)
        # The part comes last, by a rename alone: the leader may commit, and the folder be gone, as soon as it is there.
        told = self.folder / f"rank-{self._place.rank:05d}.part"
        beside = told.with_suffix(f".{secrets.token_hex(4)}.tmp")
        self._storage.create(beside, raw)
        self._storage.sync_folder(self.folder)
        self._storage.rename(beside, told)
        self._tell("checkpoint.written", step=self._step, bytes=size, seconds=time.monotonic() - started)
        return part

    def _place_of(self, blob: Blob, file: str, at: int, size: int, digest: str) -> Piece:
        return record(
            Piece,
            file,
            name=blob.name,
            dtype=blob.dtype,
            shape=blob.shape,
            offset=blob.offset,
            extent=blob.extent,
            file=file,
            at=at,
            size=size,
            hash=digest,
        )


def _flat(blob: Blob) -> memoryview:
    if why := misfit(blob.dtype, blob.shape, blob.offset, blob.extent):
        raise CheckpointError(f"{blob.name}: {why} · this is a fault of its cutter")
    view = memoryview(blob.data)
    if not view.c_contiguous:
        raise CheckpointError(f"{blob.name}: its bytes are not contiguous · copy them first")
    if view.nbytes != (wanted := math.prod(blob.extent) * ITEM_BYTES[blob.dtype]):
        raise CheckpointError(f"{blob.name}: {view.nbytes} bytes for a box of {wanted} · this is a fault of its cutter")
    return view.cast("B") if view.nbytes else memoryview(b"")


class Stream:
    """A new file that is written once, front to back, in chunks of which several are under way."""

    def __init__(self, storage: Storage, path: Path, sealer: Sealer | None) -> None:
        self._storage, self._path, self._sealer = storage, path, sealer
        self._fd = storage.do("make the file", path, lambda: _open_new(path))
        self._under_way: deque[tuple[Started[None], mmap.mmap | None]] = deque()
        self._free = [mmap.mmap(-1, CHUNK_BYTES) for _ in range(DEPTH)]
        self._chunk, self._filled, self._written = self._free.pop(), 0, 0

    def add(self, data: memoryview, lasting: bool = False) -> tuple[int, int, str]:
        """Where the bytes begin, how many are stored, and the BLAKE3 of what is stored."""
        if lasting and not self._sealer and len(data) >= IN_PLACE_BYTES and not address(data) % BLOCK_BYTES:
            return self._add_in_place(data)
        self._copy(memoryview(bytes(-self._filled % ALIGN_BYTES)))
        at = self._written + self._filled
        digest, length = blake3(), 0
        step = CHUNK_BYTES - (TAG_BYTES if self._sealer else 0)
        for start in range(0, len(data), step):
            chunk = data[start : start + step]
            if self._sealer:
                chunk = memoryview(self._sealer.seal(chunk, at + length))
            if len(chunk) < LARGE_BYTES:
                digest.update(chunk)
                self._copy(chunk)
            else:
                hashed = self._storage.start("hash", self._path, partial(digest.update, chunk))
                self._copy(chunk)
                hashed.result()
            length += len(chunk)
        return at, length, digest.hexdigest()

    def _add_in_place(self, data: memoryview) -> tuple[int, int, str]:
        """Hashed beside being written: neither waits for a copy. What is no whole block goes with what follows."""
        self._fill_block()
        at, digest = self._written, blake3()
        blocks = len(data) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, blocks, CHUNK_BYTES):
            span = data[start : min(start + CHUNK_BYTES, blocks)]
            self._start(span, None)
            digest.update(span)
        digest.update(data[blocks:])
        self._copy(data[blocks:])
        return at, len(data), digest.hexdigest()

    def finish(self) -> int:
        """Bytes of the file, now that they last."""
        self._fill_block()
        while self._under_way:
            self._end_oldest()
        # A failed fsync is final for this file: the kernel may have dropped the pages.
        self._storage.do("sync the file", self._path, lambda: os.fsync(self._fd))
        self._storage.do("close the file", self._path, lambda: os.close(self._fd))
        self._fd = -1
        return self._written

    def abandon(self, hangs: bool) -> None:
        """Gives the file up. Where a call still hangs on it, the descriptor stays open. Never raises."""
        for call, _ in () if hangs else self._under_way:
            try:
                call.result()
            except StalledError:
                hangs = True
                break
            except StorageError:
                pass
        if self._fd >= 0 and not hangs:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(StorageError):
                self._storage.do("close the file", self._path, lambda: os.close(fd))
                self._storage.unlink(self._path)

    def _copy(self, data: memoryview) -> None:
        while data:
            taken = data[: CHUNK_BYTES - self._filled]
            memoryview(self._chunk)[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            data = data[len(taken) :]
            if self._filled == CHUNK_BYTES:
                self._send()

    def _fill_block(self) -> None:
        """Pads what there is to a whole block, and sends it."""
        self._copy(memoryview(bytes(-self._filled % BLOCK_BYTES)))
        if self._filled:
            self._send()

    def _send(self) -> None:
        self._start(memoryview(self._chunk)[: self._filled], self._chunk)
        self._filled = 0
        while not self._free:
            self._end_oldest()
        self._chunk = self._free.pop()

    def _start(self, view: memoryview, chunk: mmap.mmap | None) -> None:
        fd, at = self._fd, self._written
        call = self._storage.start("write the file", self._path, lambda: _write_at(fd, view, at))
        self._under_way.append((call, chunk))
        self._written += len(view)
        if len(self._under_way) == DEPTH:
            self._end_oldest()

    def _end_oldest(self) -> None:
        call, chunk = self._under_way[0]
        call.result()
        self._under_way.popleft()
        if chunk is not None:
            self._free.append(chunk)


def address(view: memoryview) -> int:
    """Where in memory the bytes begin."""
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0]) if view.nbytes else 0


def _open_new(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # A file system without O_DIRECT may have made the file before it refused.
    path.unlink(missing_ok=True)
    return os.open(path, flags, 0o644)


def _write_at(fd: int, view: memoryview, at: int) -> None:
    while view:
        done = os.pwrite(fd, view, at)
        view, at = view[done:], at + done
