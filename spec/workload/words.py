"""Figures as people read them: `9.06 s ± 25 %`, `44 ± 15 %`, `986 GB`."""

from collections.abc import Iterator

from spec.workload.figure import Figure
from spec.workload.layout import Layout

_PARTS = ("of the step", "of the peak", "of the time", "of the busy time")


def words(figure: Figure, error: bool = True) -> str:
    """The figure in a unit of its size, with its error. That of a part of something is in points of a hundred."""
    value, off = figure.value, figure.error if error else 0.0
    if figure.unit in _PARTS:
        return f"{three(100 * value)} ± {100 * value * off:.2g} %" if off else f"{three(100 * value)} %"
    text = amount(value, figure.unit)
    return f"{text} ± {100 * off:.0f} %" if off else text


def amount(value: float, unit: str) -> str:
    """`14 min`, `986 GB`, `2.02 M tokens/s`: seconds and bytes in the unit of their size, all to three figures."""
    if unit in ("s", "days"):
        return seconds(value * 86_400 if unit == "days" else value)
    if unit == "bytes":
        return _scaled(value, ("B", "kB", "MB", "GB", "TB", "PB"))
    if unit in ("FLOP/s", "tokens/s", "parameters", "GPU hours", "currency", "tokens/s and GPU"):
        number = _scaled(value, ("", "k", "M", "B" if unit == "parameters" else "G", "T", "P"))
        glue = "" if unit == "FLOP/s" else " "
        return number.strip() if unit == "currency" else f"{number.strip()}{glue}{unit}"
    return f"{three(value)} {unit}"


def seconds(value: float) -> str:
    """A span in one unit: `310 ms`, `9.06 s`, `14 min`, `3.2 h`, `18 days`."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if value >= 2 * size or size == 1e-3 or (size == 1 and value >= 1):
            return f"{three(value / size)} {unit}"
    raise AssertionError  # the last unit takes every value


def _scaled(value: float, units: tuple[str, ...]) -> str:
    at = 0
    while value >= 999.5 and at < len(units) - 1:
        value, at = value / 1000, at + 1
    return f"{three(value)} {units[at]}"


def three(value: float) -> str:
    """Three figures, never in powers of ten: `0.37`, `45.5`, `1,024`, `below 0.001`."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-3 or value == 0 else "below 0.001"


def degrees(layout: Layout) -> str:
    """`tp4 pp4×10 cp2 dp32`: the degrees above one, as people write them."""
    return " ".join(_degrees(layout)) or "one GPU"


def _degrees(layout: Layout) -> Iterator[str]:
    if layout.tensor > 1:
        yield f"tp{layout.tensor}"
    if layout.pipeline > 1:
        yield f"pp{layout.pipeline}" + (f"×{layout.virtual}" if layout.virtual > 1 else "")
    if layout.context > 1:
        yield f"cp{layout.context}"
    if layout.data > 1:
        yield f"dp{layout.data}"
    if layout.expert > 1:
        yield f"ep{layout.expert}"
    if layout.trainers > 1:
        yield f"zero{layout.zero:d}" + (f"/{layout.shard}" if layout.shard else "")
    if layout.servers:
        yield f"{layout.servers.count} servers"
    if rl := layout.reinforcement:
        yield f"+ {rl.replicas}×{rl.gpus_per_replica} generating"
