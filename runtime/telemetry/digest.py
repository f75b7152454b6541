"""What is done with each step and event off the training thread: metrics, alarms, and on to traces and boards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from runtime.events import Tell
from runtime.telemetry.alarms import Alarm, Guard
from runtime.telemetry.config import Alarms
from runtime.telemetry.hardware import Hardware
from runtime.telemetry.metrics import Metrics
from runtime.telemetry.record import Event, Step, Waits
from runtime.telemetry.stragglers import Persistent


class Digest:
    """Takes steps and events in order. `onward` get each step, and whether it is out of its history."""

    def __init__(
        self, metrics: Metrics, alarms: Alarms | None, onward: Sequence[Callable[[Step, bool], None]], tell: Tell
    ) -> None:
        self._metrics, self._onward, self._tell = metrics, onward, tell
        self._guard = Guard(alarms) if alarms is not None else None
        self._persistent = Persistent(alarms.persist) if alarms is not None else None

    def take(self, batch: list[Step | Event | Waits]) -> None:
        """Digests them."""
        for item in batch:
            if isinstance(item, Event):
                self._metrics.event(item)
                continue
            if isinstance(item, Waits):
                self._metrics.waits(item)
                if self._persistent is not None and (alarm := self._persistent.see(item)) is not None:
                    who = {"slowest": item.rank, "node": item.node, "phase": item.phase} if alarm.rings else {}
                    self._alarm(alarm, item.last, **who)
                continue
            # A tensor is read here: this thread may wait for the device, the training thread need not.
            step = replace(item, loss=_number(item.loss), grad_norm=_number(item.grad_norm))
            self._metrics.step(step)
            alarms = self._guard.see(step) if self._guard is not None else []
            for alarm in alarms:
                self._alarm(alarm, step.number)
            for each in self._onward:
                each(step, self._guard is not None and self._guard.strange)

    def close(self) -> None:
        """Nothing to end."""

    def _alarm(self, alarm: Alarm, step: int, **more: Any) -> None:
        self._metrics.alarm(alarm)
        self._tell(
            f"alarm.{alarm.signal}",
            level="warning" if alarm.rings else "info",
            step=step,
            rings=alarm.rings,
            value=alarm.value,
            usual=alarm.usual,
            limit=alarm.limit,
            **more,
        )


class Measuring:
    """Reads the hardware whenever its lane beats."""

    def __init__(self, whole_node: bool, metrics: Metrics) -> None:
        self._hardware, self._metrics = Hardware(whole_node), metrics

    def take(self, _: list[Any]) -> None:
        """One reading of everything."""
        busy = []
        for reading in self._hardware.readings():
            self._metrics.reading(reading)
            if reading.name == "gpu_busy_ratio":
                busy.append(reading.value)
        self._metrics.gpu_busy = mean(busy) if busy else None

    def close(self) -> None:
        """Nothing to end."""


def _number(value: Any) -> float | None:
    """A number, or a tensor of one, as a float; None where it is neither."""
    if value is None:
        return None
    try:
        return float(value)
    except Exception:  # whatever it is, it is no number
        return None
