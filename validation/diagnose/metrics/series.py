"""Prometheus' answers to a range query, as numbers. Whoever wrote them: they are bounded, and nothing is believed."""

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from validation.diagnose.sources import SourceError

LARGEST = 48 << 20
"""Bytes of one answer: some 2 million points."""
MOST_SERIES = 50_000
MOST_POINTS = 20_000
"""Of one series; Prometheus itself gives 11,000 at most."""
MOST_LABELS = 40
LATEST = 1 << 33
"""Seconds since the epoch."""

_NODES = (
    "exported_node",
    "node",
    "Hostname",
    "hostname",
    "nodename",
    "kubernetes_node",
    "exported_instance",
    "instance",
)
"""Labels that name a node, the surest first: `node` is of our own metrics and of Kubernetes, `Hostname` of DCGM's."""
_PART = re.compile(rb'"(?:isPartial"\s*:\s*true|warnings"\s*:\s*\[\s*")')
"""In no text of an answer: its quotes would be escaped."""
_PORT = re.compile(r":\d{1,5}$")
_STRANGE = re.compile(r"[^\w.:/@+-]")


@dataclass(frozen=True)
class Series:
    """One metric of one thing: times in seconds since the epoch, ascending, and the value at each."""

    name: str
    labels: Mapping[str, str]
    times: "array[float]"
    values: "array[float]"

    @property
    def node(self) -> str:
        """The node that it is of, as far as labels say; an address where they know no name."""
        for label in _NODES:
            if found := self.labels.get(label):
                return _PORT.sub("", found)
        return ""


def parse(raw: bytes, where: str) -> list[Series]:
    """All series of one answer, or of several one after another. Raises SourceError; what is no series is left out."""
    if len(raw) > LARGEST:
        raise SourceError(f"{where}: more than {LARGEST >> 20} MiB · ask for a shorter time or fewer nodes")
    decoder, found, at = json.JSONDecoder(), [], 0
    try:
        text = raw.decode("utf-8", "replace")
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            answer, at = decoder.raw_decode(text, at)
            found += list(_of_answer(answer, where))
            if len(found) > MOST_SERIES:
                raise SourceError(f"{where}: more than {MOST_SERIES:,} series · ask for fewer nodes")
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply · it is no answer of Prometheus") from None
    except ValueError as wrong:
        raise SourceError(f"{where}: no JSON: {str(wrong)[:120]} · it is no whole answer of Prometheus") from None
    return found


def incomplete(raw: bytes, where: str) -> str:
    """That an answer says of itself that something may be missing; empty where it does not."""
    if _PART.search(raw) is None:
        return ""
    return f"{where}: it says itself that its answer may not be whole · look at its warnings: a store may be down"


def _of_answer(answer: Any, where: str) -> Iterator[Series]:
    if not isinstance(answer, dict):
        raise SourceError(f"{where}: no answer of Prometheus · it has a status and data")
    if answer.get("status") != "success":
        raise SourceError(
            f"{where}: {clean(str(answer.get('error', 'no answer of Prometheus')), 200)} · ask it otherwise"
        )
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(result, list):
        raise SourceError(f"{where}: no matrix · it must be the answer to a range query (query_range)")
    if len(result) > MOST_SERIES:
        raise SourceError(f"{where}: more than {MOST_SERIES:,} series · ask for fewer nodes")
    for each in result:
        if (made := _series(each)) is not None:
            yield made


def _series(each: Any) -> Series | None:
    metric, values = (each.get("metric"), each.get("values")) if isinstance(each, dict) else (None, None)
    if not isinstance(metric, dict) or not isinstance(values, list) or len(values) > MOST_POINTS:
        return None
    labels = {
        name: clean(value) for name, value in list(metric.items())[:MOST_LABELS] if isinstance(value, str) and value
    }
    name = labels.pop("__name__", "")
    points = sorted({time: value for time, value in map(_point, values) if time is not None}.items())
    if not name or not points:
        return None
    return Series(name, labels, array("d", [time for time, _ in points]), array("d", [value for _, value in points]))


def _point(told: Any) -> tuple[float | None, float]:
    """A time and a number; no time where either is none: NaN is no value."""
    if not isinstance(told, list) or len(told) != 2 or isinstance(told[0], bool):
        return None, 0.0
    time, value = told
    if not isinstance(time, int | float) or not isinstance(value, str) or len(value) > 40:
        return None, 0.0
    try:
        number = float(value)
    except ValueError:
        return None, 0.0
    return (float(time), number) if math.isfinite(number) and 0 < time < LATEST else (None, 0.0)


def clean(text: str, most: int = 100) -> str:
    """A label as it may stand in a line: nothing in it can be taken for another program's words."""
    return _STRANGE.sub("_", text[:most])
