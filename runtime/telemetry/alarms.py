"""When a figure leaves its own history. Pure: the same values give the same alarms, and no clock is read.

History is the median and the median absolute deviation (MAD) of the values before: up to half of them may be outliers
without moving either. 1.4826 MAD is one standard deviation of normal values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median

from runtime.telemetry.config import Alarms
from runtime.telemetry.record import Step

SIGMA_OF_MAD = 1.4826
RENEW = 10
"""Usual values after which the limit is worked out again: it moves slowly, and two medians a value are dear."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What is watched. `floor` is how far from the median is never an alarm, in the signal's own unit."""

    name: str
    unit: str
    floor: float


SIGNALS = (
    Signal("step_time", "s", 0.001),
    Signal("data_wait", "share of the step", 0.05),
    Signal("communication", "share of the step", 0.05),
)


@dataclass(frozen=True, slots=True)
class History:
    """The values that count as usual, oldest first, those in a row beyond the limit, and usual ones in a row since."""

    usual: tuple[float, ...] = ()
    beyond: tuple[float, ...] = ()
    rings: bool = False
    calm: int = 0
    limits: tuple[float, float] | None = None
    """The median and the highest usual value, as they were when they were last worked out."""
    fresh: int = 0
    """Values since then."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A signal that left its history (`rings`), or is back in it, or has a new one."""

    signal: str
    rings: bool
    value: float
    usual: float
    limit: float


def limit(history: History, floor: float, config: Alarms) -> tuple[float, float]:
    """The median and the highest value that still belongs to it."""
    middle = median(history.usual)
    spread = SIGMA_OF_MAD * median(abs(each - middle) for each in history.usual)
    return middle, middle + max(config.deviations * spread, config.share * abs(middle), floor)


def seen(history: History, value: float, signal: Signal, config: Alarms) -> tuple[History, Alarm | None]:
    """The history after a value, and an alarm where its state changed.

    It rings after `persist` values in a row beyond the limit and ends after as many usual ones. Values beyond are kept
    out of the history, so that a fault does not become usual; a whole window of them in a row is a new history.
    """
    if not isfinite(value):
        return history, None
    if len(history.usual) < config.least:
        return replace(history, usual=(*history.usual, value)), None
    limits, fresh = history.limits, history.fresh
    if limits is None or fresh >= RENEW:
        limits, fresh = limit(history, signal.floor, config), 0
    middle, most = limits
    if value <= most:
        usual, calm = (*history.usual, value)[-config.window :], history.calm + 1
        if not history.rings:
            return History(usual, limits=limits, fresh=fresh + 1), None
        if calm < config.persist:
            return History(usual, (), True, calm, limits, fresh + 1), None
        return History(usual, limits=limits, fresh=fresh + 1), Alarm(signal.name, False, value, middle, most)
    beyond = (*history.beyond, value)
    if len(beyond) >= config.window:
        return History(beyond), Alarm(signal.name, False, value, median(beyond), most)
    if not history.rings and len(beyond) >= config.persist:
        return replace(history, beyond=beyond, rings=True), Alarm(signal.name, True, median(beyond), middle, most)
    return replace(history, beyond=beyond, calm=0, limits=limits, fresh=fresh), None


def figures(step: Step) -> Mapping[str, float]:
    """What a step says for each signal. Time in a checkpoint or an evaluation is meant, and left out."""
    spent_ns = step.end_ns - step.start_ns - step.parts.get("checkpoint", 0) - step.parts.get("evaluation", 0)
    if spent_ns <= 0:
        return {}
    return {
        "step_time": spent_ns / 1e9,
        "data_wait": step.parts.get("data", 0) / spent_ns,
        "communication": step.parts.get("communication", 0) / spent_ns,
    }


class Guard:
    """All signals of one rank."""

    def __init__(self, config: Alarms) -> None:
        self._config = config
        self._histories = dict.fromkeys((signal.name for signal in SIGNALS), History())

    def see(self, step: Step) -> list[Alarm]:
        """The alarms that begin or end with a step."""
        told, values = [], figures(step)
        for signal in SIGNALS:
            if signal.name not in values:
                continue
            history, alarm = seen(self._histories[signal.name], values[signal.name], signal, self._config)
            self._histories[signal.name] = history
            if alarm is not None:
                told.append(alarm)
        return told

    @property
    def rings(self) -> bool:
        """Whether any signal is out of its history now, from the first value beyond on."""
        return any(history.rings or history.beyond for history in self._histories.values())
