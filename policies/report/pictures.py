"""Pictures of the fabric, as inline SVG: bandwidth of pairs by rail, and the sweep's curve. All text is escaped."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from policies.fabric import PairTest, Sweep
from policies.report.svg import line, svg, text
from policies.report.visible import visible

FEW_PAIRS = 40
"""Up to so many pairs each is a row with its figures; more become one map of nodes by nodes for each rail."""

_STEPS = 5
"""Shades between the floor and the best pair."""


def pairs(tests: Sequence[PairTest]) -> Markup:
    """Bandwidth per pair and rail as a heat map. Empty where nothing was tested."""
    if not tests:
        return Markup("")
    best = max((test.gbps for test in tests if test.gbps is not None), default=0.0)
    rails = sorted({test.rail for test in tests})
    if len({(test.a, test.b) for test in tests}) <= FEW_PAIRS:
        return _rows(tests, rails, best)
    return Markup("").join(_map([test for test in tests if test.rail == rail], rail, best) for rail in rails)


def _rows(tests: Sequence[PairTest], rails: Sequence[int], best: float) -> Markup:
    names = list(dict.fromkeys((test.a, test.b) for test in tests))
    labels = [visible(f"{a} ↔ {b}", 44) for a, b in names]
    left, wide, high, top = 24 + 7.2 * max(len(label) for label in labels), 76, 30, 30
    width, height = left + wide * len(rails) + 8, top + high * len(names) + 8
    parts = [text(left + wide * (i + 0.5), top - 11, f"rail {rail}", "middle", "axis") for i, rail in enumerate(rails)]
    found = {(test.a, test.b, test.rail): test for test in tests}
    for row, ((a, b), label) in enumerate(zip(names, labels, strict=True)):
        y = top + high * row
        parts.append(text(left - 12, y + high / 2 + 4, label, "end", "name"))
        for column, rail in enumerate(rails):
            test = found.get((a, b, rail))
            x = left + wide * column
            parts.append(_cell(test, x + 2, y + 2, wide - 4, high - 4, best, 5))
            figure = "–" if test is None or test.gbps is None else f"{test.gbps:.3g}{'' if test.ok else ' ✕'}"
            parts.append(text(x + wide / 2, y + high / 2 + 4, figure, "middle", f"figure {_shade(test, best)}"))
    return svg(width, height, parts, "Bandwidth per pair and rail, Gb/s")


def _map(tests: Sequence[PairTest], rail: int, best: float) -> Markup:
    nodes = sorted({name for test in tests for name in (test.a, test.b)}, key=_natural)
    place = {name: i for i, name in enumerate(nodes)}
    size = max(2.5, min(18.0, 300 / len(nodes)))
    side, top, left = size * len(nodes), 30, 12
    parts = [
        text(left, 18, f"rail {rail}", "start", "axis"),
        Markup('<rect x="{}" y="{}" width="{:.1f}" height="{:.1f}" class="bed"/>').format(left, top, side, side),
    ]
    for test in sorted(tests, key=lambda test: not test.ok):  # what is bad is drawn last, and large enough to be seen
        i, j = place[test.a], place[test.b]
        mark = size - 0.5 if test.ok else max(size - 0.5, 6.0)
        for x, y in ((i, j), (j, i)):
            shift = (size - mark) / 2
            parts.append(_cell(test, left + x * size + shift, top + y * size + shift, mark, mark, best, 1))
    span = f"{visible(nodes[0], 20)} … {visible(nodes[-1], 20)}"
    parts.append(text(left, top + side + 16, span, "start", "axis"))
    return svg(left + side + 12, top + side + 26, parts, f"Bandwidth between nodes on rail {rail}, Gb/s")


def _cell(test: PairTest | None, x: float, y: float, width: float, height: float, best: float, corner: float) -> Markup:
    if test is None:
        said = "not tested"
    else:
        said = f"{test.a} ↔ {test.b}, rail {test.rail}: "
        said += test.reason or "not measured" if test.gbps is None else f"{test.gbps:.4g} Gb/s"
        said += f", at least {test.floor_gbps:.4g} expected"
    return Markup(
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}" class="{}"><title>{}</title></rect>'
    ).format(x, y, width, height, corner, _shade(test, best), visible(said))


def _shade(test: PairTest | None, best: float) -> str:
    if test is None:
        return "untested"
    if test.gbps is None:
        return "silent"
    if not test.ok:
        return "low"
    room = best - test.floor_gbps
    step = _STEPS - 1 if room <= 0 else int((test.gbps - test.floor_gbps) / room * (_STEPS - 1) + 0.5)
    return f"heat{min(step, _STEPS - 1)}"


def curve(sweep: Sweep) -> Markup:
    """Bus bandwidth over message size, with the floor. Empty where no size was measured."""
    if not sweep.points:
        return Markup("")
    width, height, left, right, top, bottom = 640, 280, 58, 30, 22, 40
    points = sorted(sweep.points, key=lambda point: point.bytes)
    low, high = math.log2(points[0].bytes), math.log2(points[-1].bytes)
    most = max(sweep.floor, *(point.busbw for point in points)) * 1.15
    tick = _tick(most)

    def x(count: int) -> float:
        return left + (width - left - right) * ((math.log2(count) - low) / (high - low) if high > low else 0.5)

    def y(rate: float) -> float:
        return height - bottom - (height - top - bottom) * rate / most

    parts = []
    for i in range(int(most / tick) + 1):
        parts.append(line(left, y(i * tick), width - right, y(i * tick), "rule"))
        parts.append(text(left - 9, y(i * tick) + 4, f"{i * tick:g}", "end", "axis"))
    for point in points[:: max(1, math.ceil(len(points) / 9))]:
        parts.append(text(x(point.bytes), height - bottom + 18, size(point.bytes), "middle", "axis"))
    path = " ".join(f"{x(point.bytes):.1f},{y(point.busbw):.1f}" for point in points)
    ends = f"{x(points[-1].bytes):.1f},{y(0):.1f} {x(points[0].bytes):.1f},{y(0):.1f}"
    parts.append(Markup('<polygon points="{} {}" class="under"/>').format(path, ends))
    parts.append(Markup('<polyline points="{}" class="curve"/>').format(path))
    parts.append(line(left, y(sweep.floor), width - right, y(sweep.floor), "floor"))
    parts.append(text(left + 6, y(sweep.floor) - 7, f"floor {sweep.floor:.3g} GB/s", "start", "floor-name"))
    for point in points:
        said = f"{size(point.bytes)}: {point.busbw:.4g} GB/s bus, {point.algbw:.4g} GB/s algorithm"
        said += f", {point.wrong} wrong, {point.repeats} repeats"
        parts.append(
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="4" class="{}"><title>{}</title></circle>').format(
                x(point.bytes), y(point.busbw), "wrong" if point.wrong else "point", said
            )
        )
    parts.append(text(left - 44, 12, "GB/s", "start", "axis"))
    return svg(width, height, parts, f"{sweep.op}: bus bandwidth over message size")


def size(count: int) -> str:
    """Bytes in words: `4 MiB`."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.4g} {unit}"
    return f"{count} B"


def _tick(most: float) -> float:
    """A round step that gives three to six lines up to `most`."""
    power = 10.0 ** math.floor(math.log10(most / 3))
    return next(power * factor for factor in (5, 2, 1) if most / (power * factor) >= 3)


def _natural(name: str) -> tuple[str, int]:
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isascii() and tail.isdigit() and len(tail) < 9 else (name, -1)
