"""What is clearly out of place in metrics, as lines that rules know. Pure.

Only what the signals' data calls clear is told, and where too many places are out of it alike, no node is named.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from validation.diagnose.finding import Line
from validation.diagnose.metrics.places import ADDRESS, Place, Points, Window, by_name, figures
from validation.diagnose.metrics.series import Series
from validation.diagnose.metrics.signals import Became, Beyond, Bits, Differs, Rose, Shifted, Signal

MOST_NODES = 8
"""Nodes that a signal names; of more it tells how many."""
MOST_DEVICES = 8
LEAST_OTHERS = 3
"""Others of which a median is one."""
LEAST_BEFORE = 3
"""Points from which on one knows a level."""
RECENT_S = 1800.0
"""Seconds before the end whose median counts where places are compared."""
LARGEST_MASK = 1 << 53


@dataclass(frozen=True)
class Deviation:
    """A figure of one place that is out of it. `value` may be words."""

    place: Place
    time: float
    last: float
    """When it was last so."""
    value: float | str
    before: float = 0.0
    usual: float = 0.0
    others: str = ""


def told(
    series: Iterable[Series], signals: Iterable[Signal], file: str, window: Window
) -> Iterator[tuple[Line, datetime]]:
    """What metrics say that is clear, signal by signal, and until when it was so."""
    named = by_name(series)
    for signal in signals:
        found: dict[Place, Deviation] = {}
        nodes: set[str] = set()
        for metric in signal.metrics:
            if metric.name in named:
                places = figures(metric, signal.find, named, window, signal.noun)
                nodes |= {place.node for place in places}
                for each in _found(signal, places, window):
                    found.setdefault(each.place, each)
        for text, each in _lines(signal, list(found.values()), len(nodes)):
            rank = each.place.device if signal.noun == "rank" and each.place.device.isdecimal() else ""
            at, last = (datetime.fromtimestamp(time, UTC) for time in (each.time, each.last))
            number = int(rank) if 0 < len(rank) < 7 else None
            yield Line(file, 0, f"metrics: {text}", at, number, each.place.node or None), last


def _found(signal: Signal, places: Mapping[Place, Points], window: Window) -> Iterator[Deviation]:
    match signal.find:
        case Rose() as find:
            yield from _rose(find, places)
        case Became():
            yield from _became(places)
        case Beyond() as find:
            yield from _beyond(find, places, window)
        case Shifted() as find:
            yield from _shifted(find, places)
        case Differs() as find:
            yield from _differs(find, places, window)
        case Bits() as find:
            yield from _bits(find, places)


def _rose(find: Rose, places: Mapping[Place, Points]) -> Iterator[Deviation]:
    totals = {place: sum(points.values) for place, points in places.items()}
    ordered = sorted(totals.values())
    for place, total in totals.items():
        if total < find.least:
            continue
        # The median of all is that of the others, or more by what one of them is.
        usual = median(ordered) if len(ordered) > LEAST_OTHERS else 0.0
        if find.times is None or total >= find.times * usual:
            points = places[place]
            rises = [time for time, rise in zip(points.times, points.values, strict=True) if rise > 0]
            yield Deviation(place, rises[0], rises[-1], total, usual=usual)


def _became(places: Mapping[Place, Points]) -> Iterator[Deviation]:
    for place, points in places.items():
        for i in range(1, len(points.times)):
            value = points.values[i]
            if value != points.values[i - 1] and 0 < value < 10_000:
                yield Deviation(place, points.times[i], points.times[i], value, before=points.values[i - 1])
                break


def _beyond(find: Beyond, places: Mapping[Place, Points], window: Window) -> Iterator[Deviation]:
    for place, points in places.items():
        end = window.end if window.end is not None else points.times[-1]
        first = end - find.last_s if find.last_s is not None else 0.0
        run: list[int] = []
        for i, (time, value) in enumerate(zip(points.times, points.values, strict=True)):
            if first <= time <= end and find.is_so(value):
                run.append(i)
            elif time <= end:
                if _long(points, run, find.for_s):
                    break
                run = []
        if _long(points, run, find.for_s):
            values = [points.values[i] for i in run]
            worst = min(values) if find.below is not None else max(values, key=abs)
            yield Deviation(place, points.times[run[0]], points.times[run[-1]], worst)


def _long(points: Points, run: Sequence[int], seconds: float) -> bool:
    return bool(run) and points.times[run[-1]] - points.times[run[0]] >= seconds


def _shifted(find: Shifted, places: Mapping[Place, Points]) -> Iterator[Deviation]:
    kept, there = _levels(find, places) if find.others is not None else ({}, {})
    alone = len({place.node for place in places}) < 2
    for place, points in places.items():
        run: list[int] = []
        others = ""
        for i, (time, value) in enumerate(zip(points.times, points.values, strict=True)):
            so = find.came(value)
            if so and find.others is not None:
                mine = 1 if alone else there[time][place.node]
                my_kept = 0 if alone else kept[time][place.node]
                of, still = there[time].total() - mine, kept[time].total() - my_kept
                so = of > 0 and still >= find.others * of
                others = f"{still} of {of} others" if so else others
            if so:
                run.append(i)
                continue
            if _began(find, points, run):
                break
            run = []
        if _began(find, points, run):
            yield Deviation(
                place,
                points.times[run[0]],
                points.times[run[-1]],
                median([points.values[i] for i in run]),
                before=median(points.values[: run[0]]),
                others=others,
            )


def _began(find: Shifted, points: Points, run: Sequence[int]) -> bool:
    """Whether a run is long enough, and what came before it was at the other level."""
    if not _long(points, run, find.for_s) or run[0] < LEAST_BEFORE:
        return False
    return find.was(median(points.values[: run[0]]))


def _levels(
    find: Shifted, places: Mapping[Place, Points]
) -> tuple[dict[float, Counter[str]], dict[float, Counter[str]]]:
    """At each time and node: how many places are at the level of before, and how many there are."""
    kept: dict[float, Counter[str]] = defaultdict(Counter)
    there: dict[float, Counter[str]] = defaultdict(Counter)
    for place, points in places.items():
        for time, value in zip(points.times, points.values, strict=True):
            there[time][place.node] += 1
            kept[time][place.node] += find.was(value)
    return kept, there


def _differs(find: Differs, places: Mapping[Place, Points], window: Window) -> Iterator[Deviation]:
    medians = {}
    for place, points in places.items():
        end = window.end if window.end is not None else points.times[-1]
        recent = [v for t, v in zip(points.times, points.values, strict=True) if end - RECENT_S <= t <= end]
        if len(recent) >= LEAST_BEFORE:
            medians[place] = median(recent)
    by_node: dict[str, list[float]] = defaultdict(list)
    for place, value in medians.items():
        by_node[place.node].append(value)
    usuals = {node: _usual(node, by_node) for node in by_node}
    for place, value in medians.items():
        usual = usuals[place.node]
        if usual is None:
            continue
        far = value >= find.times * usual if find.times > 1 else value <= find.times * usual
        if far and abs(value - usual) >= find.least:
            last = places[place].times[-1]  # since when is not known
            yield Deviation(place, last, last, value, usual=usual)


def _usual(node: str, by_node: Mapping[str, Sequence[float]]) -> float | None:
    """The median of what other nodes have; on a single node, of all its devices; none where they are too few."""
    others = [value for other, values in by_node.items() if other != node for value in values] or by_node[node]
    return median(others) if len(others) >= LEAST_OTHERS else None


def _bits(find: Bits, places: Mapping[Place, Points]) -> Iterator[Deviation]:
    for place, points in places.items():
        set_: dict[int, list[float]] = defaultdict(list)
        for time, value in zip(points.times, points.values, strict=True):
            mask = int(value) if 0 < value < LARGEST_MASK else 0
            for bit in find.bits:
                if mask & bit:
                    set_[bit].append(time)
        often = {bit: when for bit, when in set_.items() if len(when) >= max(2.0, find.share * len(points.times))}
        if often:
            words = ", ".join(find.bits[bit] for bit in sorted(often))
            first, last = min(when[0] for when in often.values()), max(when[-1] for when in often.values())
            yield Deviation(place, first, last, words)


def _lines(signal: Signal, found: Sequence[Deviation], nodes: int) -> Iterator[tuple[str, Deviation]]:
    """A line a node, of its first device that is out of place; one in all where more nodes are than can be odd."""
    by_node: dict[str, list[Deviation]] = defaultdict(list)
    for each in sorted(found, key=lambda each: (each.time, each.place)):
        by_node[each.place.node].append(each)
    if isinstance(signal.find, Became):
        for mine in by_node.values():
            yield from ((_xid(signal, each), each) for each in mine[:MOST_DEVICES])
        return
    if len(by_node) > MOST_NODES or len(by_node) == nodes >= LEAST_OTHERS:
        first = next(iter(by_node.values()))[0]
        on = f"{'all ' if len(by_node) == nodes else ''}{len(by_node)} nodes"
        who = _who(signal.noun, sorted({each.place.device for each in found}), on)
        yield _text(signal, first, who), Deviation(Place("", ""), first.time, first.last, first.value)
        return
    for node, mine in by_node.items():
        devices = [each.place.device for each in mine]
        first = mine[0]
        whole = Deviation(Place(node, ""), first.time, first.last, first.value) if len(mine) > 1 else first
        yield _text(signal, first, _who(signal.noun, sorted(devices), _node(node))), whole


def _node(name: str) -> str:
    return f"node {name}" if name else "a node"


def _who(noun: str, devices: Sequence[str], on: str) -> str:
    if not noun or not devices[0]:
        return on
    if len(devices) == 1:
        return f"{noun} {devices[0]} of {on}"
    more = f" and {len(devices) - MOST_DEVICES} more" if len(devices) > MOST_DEVICES else ""
    return f"{noun}s {', '.join(devices[:MOST_DEVICES])}{more} of {on}"


def _text(signal: Signal, each: Deviation, who: str) -> str:
    clock = f"{datetime.fromtimestamp(each.time, UTC):%H:%M:%S} UTC"
    return signal.says.format(
        who=who, value=each.value, before=each.before, usual=each.usual, others=each.others, clock=clock
    )


def _xid(signal: Signal, each: Deviation) -> str:
    """In the kernel's own form where the GPU's address is known: there is a rule for each number of it."""
    if ADDRESS.fullmatch(each.place.device):
        return (
            f"NVRM: Xid (PCI:{each.place.device}): {each.value:.0f}, as DCGM's exporter tells of node {each.place.node}"
        )
    return _text(signal, each, _who(signal.noun, [each.place.device], _node(each.place.node)))
