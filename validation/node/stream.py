"""How a node's answers travel: lines of JSON, the first and the last of which say whether they are all there.

A header, a record for each measurement as soon as it is taken, and a closing record with their count and the SHA-256
of all lines before it. A stream without that closing record was cut off. Both ends are here.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import BinaryIO

from validation.node.measure import Json

PROTOCOL = "muster/suite/v1"

VALUE_LIMIT = 128 * 1024
"""Bytes of JSON that one measured value may have."""
LINE_LIMIT = 192 * 1024
LINES_LIMIT = 1000
STREAM_LIMIT = 8 * 1024 * 1024
"""What is read of one node at most: a longer line, more lines or more bytes end the reading."""


class Writer:
    """The node's end. `out` is a binary stream; every record is flushed."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._digest = hashlib.sha256()
        self._count = 0

    def header(self, **fields: Json) -> None:
        """Opens the stream."""
        self._line({"record": "header", "protocol": PROTOCOL, **fields})

    def measurement(self, **fields: Json) -> None:
        """Writes one measurement. Raises ValueError where it is no JSON, NaN among that."""
        self._line({"record": "measurement", **fields})
        self._count += 1

    def close(self, **fields: Json) -> None:
        """Says that this was all."""
        self._line({"record": "closing", "count": self._count, "digest": self._digest.hexdigest(), **fields})

    def _line(self, record: dict[str, Json]) -> None:
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self._digest.update(line)
        self._out.write(line)
        self._out.flush()


@dataclass
class Stream:
    """What could be read of one node's stream. `fault` says why it is not complete, and is none where it is."""

    header: dict[str, Json] | None = None
    measurements: list[dict[str, Json]] = field(default_factory=list)
    fault: str | None = "the node told nothing"


def read(data: bytes) -> Stream:
    """Reads a stream as far as it can be believed. Never raises: whatever is wrong with it ends up in `fault`."""
    stream = Stream()
    if len(data) > STREAM_LIMIT:
        stream.fault = f"the node told more than {STREAM_LIMIT} bytes"
        return stream
    *lines, rest = data.split(b"\n")
    digest = hashlib.sha256()
    for number, line in enumerate(lines, 1):
        try:
            if number > LINES_LIMIT:
                raise ValueError(f"there are more than {LINES_LIMIT}")
            record = _record(line)
            closing = _take(stream, record, digest.hexdigest())
        except (ValueError, RecursionError) as error:
            stream.fault = f"line {number} of the node's answer is not to be believed: {str(error)[:300]}"
            return stream
        if closing:
            stray = len(lines) > number or rest
            stream.fault = "the node went on after its closing record" if stray else None
            return stream
        digest.update(line + b"\n")
    if stream.header is not None:
        stream.fault = f"the node's answer ends after {len(stream.measurements)} measurements, before it was complete"
    elif rest:
        stream.fault = f"the node told something else: {rest[:200].decode(errors='replace')!r}"
    return stream


def _take(stream: Stream, record: dict[str, Json], digest: str) -> bool:
    """Adds a record to a stream. Returns whether it was the closing one. Raises ValueError where it is out of place."""
    kind = record.pop("record", None)
    if (kind == "header") != (stream.header is None):
        raise ValueError("there is one header, and it comes first")
    if kind == "header":
        if record.pop("protocol", None) != PROTOCOL:
            raise ValueError(f"it does not speak {PROTOCOL}")
        stream.header = record
    elif kind == "measurement":
        stream.measurements.append(record)
    elif kind == "closing":
        if record.get("count") != len(stream.measurements) or record.get("digest") != digest:
            raise ValueError("its closing record does not fit what came before it")
        return True
    else:
        raise ValueError(f"unknown record {str(kind)[:40]!r}")
    return False


def _record(line: bytes) -> dict[str, Json]:
    if len(line) > LINE_LIMIT:
        raise ValueError(f"it has more than {LINE_LIMIT} bytes")
    record = json.loads(line.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_object)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    return record


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found
