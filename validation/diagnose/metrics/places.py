"""From series to figures: for each device of each node, times and values in the signal's unit. Pure."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from validation.diagnose.allocation import short
from validation.diagnose.metrics.series import Series
from validation.diagnose.metrics.signals import Metric, Rose

BEFORE_S = 60.0
AFTER_S = 120.0
"""Seconds around the job's own time that count: what is scraped once a minute is known late."""

ADDRESS = re.compile(r"(?:0{4})?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")
"""Of a GPU on PCIe, in which DCGM writes the domain with eight digits."""


class Place(NamedTuple):
    """Where a figure is from. `device` is empty where it is of the whole node."""

    node: str
    device: str


@dataclass(frozen=True)
class Points:
    """Figures of one place, in the order of time."""

    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Window:
    """Which time and nodes are the job's, as far as that is known. Seconds since the epoch."""

    start: float | None = None
    end: float | None = None
    nodes: tuple[str, ...] = ()

    def cut(self, series: Series) -> Points:
        """The points within the time."""
        first = self.start - BEFORE_S if self.start is not None else -math.inf
        last = self.end + AFTER_S if self.end is not None else math.inf
        if series.times[0] >= first and series.times[-1] <= last:
            return Points(series.times, series.values)
        kept = [i for i, time in enumerate(series.times) if first <= time <= last]
        return Points([series.times[i] for i in kept], [series.values[i] for i in kept])

    def node(self, name: str) -> str | None:
        """The job's name for a node; None where it is none of the job's."""
        if not self.nodes or name in self.nodes:
            return name
        return next((each for each in self.nodes if short(each) == short(name)), None) if name else None


def by_name(series: Iterable[Series]) -> dict[str, list[Series]]:
    """Series by their metric."""
    found: dict[str, list[Series]] = defaultdict(list)
    for each in series:
        found[each.name].append(each)
    return found


def figures(
    metric: Metric, find: object, series: Mapping[str, Sequence[Series]], window: Window, noun: str
) -> dict[Place, Points]:
    """What a metric says of each place. Of a counter the increases from one time to the next."""
    counts = isinstance(find, Rose) or metric.per is not None
    made = _gathered(metric.name, metric, series, window, noun, counts)
    if metric.per is not None:
        others = _gathered(metric.per, metric, series, window, noun, counts=True)
        made = {
            place: _divided(points, others[place], metric.least) for place, points in made.items() if place in others
        }
    if metric.over is not None:
        others = _gathered(metric.over, metric, series, window, noun, counts=False, only={})
        made = {place: _divided(points, others[place]) for place, points in made.items() if place in others}
    if metric.where is not None:
        others = _gathered(metric.where, metric, series, window, noun, counts=False, only={})
        made = {
            place: _where(points, others[place], metric.at_least) for place, points in made.items() if place in others
        }
    return {
        place: Points(points.times, [value * metric.scale for value in points.values])
        for place, points in made.items()
        if points.times
    }


def _gathered(
    name: str,
    metric: Metric,
    series: Mapping[str, Sequence[Series]],
    window: Window,
    noun: str,
    counts: bool,
    only: Mapping[str, str] | None = None,
) -> dict[Place, Points]:
    wanted = metric.only if only is None else only
    parts: dict[Place, list[Points]] = defaultdict(list)
    for each in series.get(name, ()):
        if any(each.labels.get(label) != value for label, value in wanted.items()):
            continue
        node = window.node(each.node)
        if node is None:
            continue
        points = window.cut(each)
        if points.times:
            parts[Place(node, _device(each.labels, metric.device, noun))].append(_risen(points) if counts else points)
    return {place: _together(of_place, counts) for place, of_place in parts.items()}


def _device(labels: Mapping[str, str], names: Sequence[str], noun: str) -> str:
    if noun == "GPU" and (found := ADDRESS.fullmatch(labels.get("pci_bus_id", ""))):
        return found[1].lower()
    return "/".join(labels[name] for name in names if name in labels)


def _risen(points: Points) -> Points:
    """How much a counter rose since the time before. One that fell far was reset, and counts on from zero."""
    rises = []
    for was, now in zip(points.values, points.values[1:], strict=False):
        rises.append(now - was if now >= was else now if now < was / 2 else 0.0)
    return Points(points.times[1:], rises)


def _together(parts: Sequence[Points], counts: bool) -> Points:
    """Of several series of one place: counters add up, of gauges the last one counts."""
    if len(parts) == 1:
        return parts[0]
    at: dict[float, float] = {}
    for part in parts:
        for time, value in zip(part.times, part.values, strict=True):
            at[time] = at.get(time, 0.0) + value if counts else value
    ordered = sorted(at)
    return Points(ordered, [at[time] for time in ordered])


def _divided(points: Points, by: Points, least: float = 0.0) -> Points:
    divisors = dict(zip(by.times, by.values, strict=True))
    kept = [
        (time, value / divisors[time])
        for time, value in zip(points.times, points.values, strict=True)
        if divisors.get(time, 0.0) > 0 and divisors[time] >= least
    ]
    return Points([time for time, _ in kept], [value for _, value in kept])


def _where(points: Points, holds: Points, least: float) -> Points:
    when = {time for time, value in zip(holds.times, holds.values, strict=True) if value >= least}
    kept = [(time, value) for time, value in zip(points.times, points.values, strict=True) if time in when]
    return Points([time for time, _ in kept], [value for _, value in kept])
