"""How long a message takes: by a measured size curve where there is one, by latency and bandwidth where not."""

from bisect import bisect_left
from math import exp, log
from typing import Annotated, Self

from pydantic import Field, model_validator

from spec.schema.base import Declared, Text

LATENCY_S = 23e-6
"""Of one collective. From «4 MiB messages run about 3× slower than large ones»: twice the 11.5 µs that 4 MiB take at
364 GB/s, the plateau of 8×400 Gb/s (365 GB/s on 4×8 H200, stas00/ml-engineering)."""


class Point(Declared):
    """One size of a sweep: its bytes, as nccl-tests prints them, and the bus bandwidth in GB/s."""

    bytes: Annotated[float, Field(gt=0)]
    busbw: Annotated[float, Field(gt=0)]


class Curve(Declared):
    """Bus bandwidth of an all-reduce by message size, as the cluster's NCCL job measured it."""

    points: Annotated[tuple[Point, ...], Field(min_length=1)]
    source: Text

    @model_validator(mode="after")
    def _sizes_ascend(self) -> Self:
        sizes = [each.bytes for each in self.points]
        if sizes != sorted(set(sizes)):
            raise ValueError("points: sizes must ascend, each once: sort them and leave one measurement a size")
        return self

    @property
    def plateau(self) -> float:
        """GB/s of the largest message."""
        return self.points[-1].busbw

    @property
    def _logs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Sizes and times, in logarithms. A larger message never takes less time, whatever was measured."""
        times: list[float] = []
        for each in self.points:
            times.append(max(each.bytes / each.busbw, times[-1] if times else 0.0))
        return tuple(log(each.bytes) for each in self.points), tuple(log(each) for each in times)

    def seconds(self, message: float, bus_bytes: float, share: float) -> float:
        """The time of one operation.

        Args: the message in bytes as nccl-tests counts it; the bytes that one rank sends; the part of the measured
        bandwidth that the group has. Between points: straight in logarithms. Below them: the time of the smallest.
        Above: the bandwidth of the largest.
        """
        sizes, times = self._logs
        at = log(message)
        if at <= sizes[0]:
            unit = exp(times[0])
        elif at >= sizes[-1]:
            unit = exp(times[-1] + at - sizes[-1])
        else:
            right = bisect_left(sizes, at)
            part = (at - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
            unit = exp(times[right - 1] + part * (times[right] - times[right - 1]))
        return unit * (bus_bytes / message) / 1e9 / share
