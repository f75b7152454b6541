"""What ranks waited for the slowest of them, from what each tells of itself. Pure.

In a synchronous step durations invert: who is slow comes last to the communication and is in it for the shortest time.
What a rank was in it beyond the shortest of all, it waited. Clocks of nodes need not agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.telemetry.alarms import Alarm
from runtime.telemetry.record import Step, Waits
from runtime.telemetry.steps import PHASES

REST = "rest"
OWN = tuple(name for name in (*PHASES, REST) if name != "communication")
"""Phases in which a rank can be slow by itself."""
LIMIT = 0.05
"""Of a step's time: less is not worth an alarm."""


@dataclass
class Row:
    """One rank's steps: how many, and in how many its time in communication was known on all ranks. Times in µs."""

    steps: int = 0
    looked: int = 0
    waited: int = 0
    """In those that were looked at."""
    all: int = 0
    parts: list[int] = field(default_factory=lambda: [0] * len(OWN))

    def add(self, step: Step) -> None:
        """Counts a step's time."""
        self.all += (step.end_ns - step.start_ns) // 1000
        rest = step.end_ns - step.start_ns - sum(step.parts.values())
        for index, name in enumerate(OWN):
            self.parts[index] += max(0, rest if name == REST else step.parts.get(name, 0)) // 1000

    def values(self) -> tuple[int, ...]:
        """For the way to rank 0: as many on each rank."""
        return (self.steps, self.looked, self.waited, self.all, *self.parts)


def row(values: Sequence[int]) -> Row:
    """From its values."""
    steps, looked, waited, all_, *parts = values
    return Row(steps, looked, waited, all_, parts)


def together(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """The same ranks, over two spans."""
    added = [map(sum, zip(one.values(), two.values(), strict=True)) for one, two in zip(rows, more, strict=True)]
    return [row(tuple(each)) for each in added]


def waits(rows: Sequence[Row], nodes: Sequence[str], first: int, last: int, at_ns: int) -> Waits | None:
    """What all ranks' rows come to. None where one of them measured nothing: it may be the slowest.

    Where only some of the steps were looked at, they stand for all.
    """
    if len(rows) < 2 or not all(each.looked and each.steps for each in rows):
        return None
    each_s = [each.waited / each.looked * each.steps / 1e6 for each in rows]
    slowest = min(range(len(rows)), key=each_s.__getitem__)
    waited_s = sum(each_s) / len(rows)
    mean = [sum(each.parts[index] for each in rows) / len(rows) / 1e6 for index in range(len(OWN))]
    beyond = [spent / 1e6 - usual for spent, usual in zip(rows[slowest].parts, mean, strict=True)]
    most = max(range(len(OWN)), key=beyond.__getitem__)
    return Waits(
        at_ns=at_ns,
        first=first,
        last=last,
        waited_s=waited_s,
        seconds=sum(each.all for each in rows) / len(rows) / 1e6,
        parts={name: spent for name, spent in zip(OWN, mean, strict=True) if spent and name != REST},
        rank=slowest,
        node=nodes[slowest],
        phase=OWN[most] if waited_s > 0 and beyond[most] >= waited_s / 2 else None,
    )


class Persistent:
    """Rings when one node has the slowest rank so many times in a row, and the others wait for it more than LIMIT."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._latest: str | None = None
        self._row = 0
        self._without = 0
        self.node: str | None = None
        """For which it rings."""

    def see(self, waits: Waits) -> Alarm | None:
        """An alarm that begins, for another node than before too, or one that ends after as many times without it."""
        slow = waits.node if waits.share >= LIMIT else None
        self._row = self._row + 1 if slow is not None and slow == self._latest else int(slow is not None)
        self._latest = slow
        self._without = self._without + 1 if slow != self.node else 0
        if slow is not None and slow != self.node and self._row >= self._times:
            self.node, self._without = slow, 0
        elif self.node is not None and self._without >= self._times:
            self.node = None
        else:
            return None
        return Alarm("straggler", self.node is not None, waits.share, 0.0, LIMIT)
