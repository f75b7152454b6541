"""Time across a picture: to scale, with long times in which nothing happened cut out and marked. Pure."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

MOST_BREAKS = 3
_BREAK = 74.0
"""Pixels of a time that is cut out."""
_LABEL = 84.0
"""Pixels between labels."""
_ROUND_S = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True)
class Axis:
    """Where times stand. `segments`: from and to in seconds, from and to in pixels, in their order."""

    segments: tuple[tuple[float, float, float, float], ...]
    ticks: tuple[tuple[float, str], ...]
    """Pixels and the clock there."""
    breaks: tuple[tuple[float, float, str], ...]
    """Pixels from and to, and how long it is."""

    def x(self, time: datetime) -> float:
        """Pixels of a time that the axis was made for."""
        at = time.timestamp()
        start, stop, left, right = next((each for each in self.segments if at <= each[1]), self.segments[-1])
        return left + (right - left) * (at - start) / (stop - start) if stop > start else (left + right) / 2


def axis(times: Iterable[datetime], left: float, right: float) -> Axis:
    """The axis of at least one time, between two places in pixels."""
    at = sorted({each.timestamp() for each in times})
    groups = _groups(at)
    room = right - left - _BREAK * (len(groups) - 1)
    lengths = [group[-1] - group[0] for group in groups]
    whole = sum(lengths)
    least = min(130.0, room / len(groups))  # also a group of one time needs room for its clock
    widths = [least + (room - least * len(groups)) * (each / whole if whole else 1 / len(groups)) for each in lengths]
    segments, breaks, x = [], [], left
    for i, (group, width) in enumerate(zip(groups, widths, strict=True)):
        segments.append((group[0], group[-1], x, x + width))
        x += width
        if i + 1 < len(groups):
            breaks.append((x, x + _BREAK, length(groups[i + 1][0] - group[-1])))
            x += _BREAK
    return Axis(tuple(segments), tuple(_ticks(segments)), tuple(breaks))


def length(seconds: float) -> str:
    """`29 min`, `1.5 s`."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def _groups(at: Sequence[float]) -> list[list[float]]:
    """The times, parted where more than half of what is left passes without any."""
    gaps = sorted(((b - a, i) for i, (a, b) in enumerate(itertools.pairwise(at), 1)), reverse=True)
    left, cuts = at[-1] - at[0], []
    for gap, i in gaps[:MOST_BREAKS]:
        if not 0.5 * left <= gap < left:  # of a single gap nothing would be left to scale
            break
        cuts.append(i)
        left -= gap
    edges = [0, *sorted(cuts), len(at)]
    return [list(at[a:b]) for a, b in itertools.pairwise(edges)]


def _ticks(segments: Iterable[tuple[float, float, float, float]]) -> Iterable[tuple[float, str]]:
    for start, stop, left, right in segments:
        if stop <= start:
            yield (left + right) / 2, _clock(start, 1)
            continue
        most = max(1, int((right - left) / _LABEL))
        step = next((each for each in _ROUND_S if (stop - start) / each <= most), (stop - start) / most)
        first = -(-start // step) * step
        inside = [first + step * i for i in range(most + 1) if first + step * i <= stop]
        for tick in inside or [start]:
            yield left + (right - left) * (tick - start) / (stop - start), _clock(tick, step)


def _clock(at: float, step: float) -> str:
    time = datetime.fromtimestamp(at, UTC)
    if step >= 86400:
        return f"{time:%-d %b}"
    return f"{time:%H:%M:%S}" if step >= 1 else f"{time:%H:%M:%S.%f}"[: 10 if step >= 0.1 else 12]
