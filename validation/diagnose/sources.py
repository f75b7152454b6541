"""The files that a job and its nodes left: found, opened, decompressed and streamed. Nothing in them is executed."""

import bz2
import gzip
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import zstandard

CHUNK_BYTES = 4 << 20
LONGEST_LINE = 8 << 20
"""Bytes. A longer line is read in parts."""
MOST_FILES = 100_000
MOST_UNPACKED = 64 << 30
"""Bytes that one compressed file may become."""
TEXT_BYTES = 64 << 10
"""Of a file's beginning, to see whether it is text."""
_CONTROL = bytes({*range(32), 127} - set(b"\a\b\t\n\v\f\r\x1b"))
"""What no text holds. Noise has 23 of 256, a log that lost its end to a crash some zeros."""

DUMP = re.compile(
    r"(?:(?:nccl|comm_lib)_trace[\w.-]*?[_.-](?:rank_?)?(?P<own>\d+)(?:\.json|\.pickle|\.pkl)?"
    r"|-torch-rank-(?P<torch>\d+)|-rank-(?P<runtime>\d+)\.(?:nccl2?|gloo)\.json)$"
)
"""Dumps of torch's flight recorder: by the names that torch gives them, hosts' names in them among others, and by those
that the runtime's watchdog does."""

ANSWER = re.compile(
    rb'\s*\{\s*"status"\s*:\s*"success"\s*,(?:\s*"isPartial"\s*:\s*(?:true|false)\s*,)?'
    rb'\s*"data"\s*:\s*\{\s*"resultType"\s*:\s*"matrix"'
)
"""How the answer of a Prometheus to a range query begins, or of what speaks as it does."""
SNAPSHOT = re.compile(r"^muster-snapshot-[\w.-]+\.json$")
"""What `muster diagnose --live --save` and `muster debug snapshot` keep of a node."""

PACKED = (".gz", ".bz2", ".xz", ".zst")
_ROTATED = re.compile(r"(?:\.\d{1,4}|-\d{8})$")
_IGNORED = frozenset(
    {".pt", ".pth", ".safetensors", ".npz", ".npy", ".so", ".pyc", ".png", ".html", ".data", ".distcp"}
)
_WRITTEN = re.compile(r"\.(?:py|pyi|ipynb|c|cc|cpp|cu|h|hpp|rs|go|js|ts|java|md|rst)$")
"""Endings of what people write, in which an error's words are only spoken of."""
_OWN = re.compile(r"^diagnosis-\d+(?:_\d+)?\.json$")
"""What a diagnosis wrote beside a job's log: it holds the lines that it found."""


class SourceError(Exception):
    """Something that cannot be read, and why: file, what is wrong, what to do."""


@dataclass(frozen=True)
class Source:
    """A file of text. `name` is as it was asked for, below the folder that was given."""

    path: Path
    name: str
    year: int
    """In which it was last written: for times without one."""

    @property
    def plain_name(self) -> str:
        """Without the endings of rotation and compression."""
        name = self.name
        for _ in range(3):
            stem, dot, end = name.rpartition(".")
            name = stem if dot and f".{end}" in PACKED else _ROTATED.sub("", name)
        return name

    def chunks(self) -> Iterator[bytes]:
        """The bytes, unpacked, in parts of about CHUNK_BYTES that end with a line. Raises SourceError."""
        rest, total = b"", 0
        for part in self._parts():
            total += len(part)
            if total > MOST_UNPACKED:
                raise SourceError(f"{self.path}: more than {MOST_UNPACKED >> 30} GiB when unpacked · cut it")
            whole, newline, begun = part.rpartition(b"\n")
            if newline:
                yield rest + whole + newline
                rest = begun
            elif len(rest) > LONGEST_LINE:
                yield rest + part
                rest = b""
            else:
                rest += part
        if rest:
            yield rest

    def _parts(self) -> Iterator[bytes]:
        """As they come. What was unpacked before an error counts."""
        pieces: list[bytes] = []
        size = 0
        try:
            with self._open() as file:
                take = getattr(file, "read1", file.read)
                while piece := take(CHUNK_BYTES):
                    pieces.append(piece)
                    size += len(piece)
                    if size >= CHUNK_BYTES:
                        yield b"".join(pieces)
                        pieces, size = [], 0
        except (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as wrong:
            if pieces:
                yield b"".join(pieces)
            said = getattr(wrong, "strerror", None) or wrong  # without the file's name again
            raise SourceError(f"{self.path}: {said} · what comes before was read") from wrong
        if pieces:
            yield b"".join(pieces)

    def _open(self) -> IO[bytes] | gzip.GzipFile:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        file = os.fdopen(fd, "rb", buffering=0)
        magic = os.pread(fd, 6, 0)
        if magic.startswith(b"\x1f\x8b"):
            return gzip.GzipFile(fileobj=file)
        if magic.startswith(b"BZh"):
            return bz2.BZ2File(file)
        if magic.startswith(b"\xfd7zXZ"):
            return lzma.LZMAFile(file)
        if magic.startswith(b"\x28\xb5\x2f\xfd"):
            return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return file


@dataclass(frozen=True)
class Held(Source):
    """A text that is in no file of its own."""

    raw: bytes

    def chunks(self) -> Iterator[bytes]:
        """All of it, as it is."""
        yield self.raw


@dataclass(frozen=True)
class Sources:
    """What is there to read, and what was left out with why."""

    files: tuple[Source, ...]
    dumps: tuple[Path, ...]
    """Of torch's flight recorder."""
    answers: tuple[Source, ...]
    """Of a Prometheus, saved."""
    snapshots: tuple[Path, ...]
    """Of nodes of a job that ran."""
    left_out: tuple[str, ...]


def find(paths: Iterable[Path]) -> Sources:
    """The text files at and below these paths. Raises SourceError where a path is not there, or has nothing to read."""
    files: list[Source] = []
    answers: list[Source] = []
    dumps: list[Path] = []
    snapshots: list[Path] = []
    left_out: list[str] = []
    asked = list(paths)
    for path in asked:
        if not path.exists():
            raise SourceError(f"{path}: no such file or folder · give the job's logs")
        below = sorted(_below(path)) if path.is_dir() else [path]
        for each in below:
            if DUMP.search(each.name):
                dumps.append(each)
                continue
            if SNAPSHOT.search(each.name):
                snapshots.append(each)
                continue
            name = str(each.relative_to(path)) if path.is_dir() else str(each)
            why, found = _looked_at(each, name)
            if found is not None:
                (answers if _is_answer(found) else files).append(found)
            elif why:
                left_out.append(f"{each}: {why}")
            if len(files) > MOST_FILES:
                raise SourceError(f"{path}: more than {MOST_FILES:,} files · give a folder of one job")
    if not files and not dumps and not answers and not snapshots:
        shown = "; ".join(left_out[:4]) or "there are no files"
        raise SourceError(f"{', '.join(map(str, asked))}: nothing to read: {shown} · give the job's logs")
    return Sources(tuple(files), tuple(dumps), tuple(answers), tuple(snapshots), tuple(left_out))


def _is_answer(source: Source) -> bool:
    """Whether a file is a saved answer of Prometheus: its first bytes say so."""
    return source.plain_name.endswith(".json") and ANSWER.match(next(source.chunks(), b"")[:TEXT_BYTES]) is not None


def _below(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        for name in names:
            yield Path(root, name)


def _looked_at(path: Path, name: str) -> tuple[str, Source | None]:
    """The file as a source, or why it is none; no reason where nobody would expect it to be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return "no regular file", None
        if path.suffix in _IGNORED or _OWN.match(path.name) or not found.st_size:
            return "", None
        source = Source(path, name, datetime.fromtimestamp(found.st_mtime, UTC).year)
        if _WRITTEN.search(source.plain_name):
            return "", None
        start = next(source.chunks(), b"")[:TEXT_BYTES]
    except (OSError, SourceError) as wrong:
        return str(wrong).removeprefix(f"{path}: "), None
    if len(start) - len(start.translate(None, _CONTROL)) > len(start) // 50:
        return "binary", None
    return "", source
