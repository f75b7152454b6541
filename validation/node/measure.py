"""One function a fact: `@measure` gives it its name, and the suite takes every fact that has one."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A JSON value: what a measurement function returns."""

LIMIT_S = 10.0
"""Seconds that a measurement may take unless it says otherwise."""


class Unmeasurable(Exception):  # noqa: N818
    """This fact cannot be known on this node, and why: never a zero, never a pass."""


@dataclass(frozen=True)
class Measure:
    """A fact that the suite can measure. `wants` are the function's parameters: `host`, `nvml`."""

    name: str
    function: Callable[..., Json]
    unit: str | None
    per: str | None
    source: str | None
    limit_s: float
    wants: tuple[str, ...]


MEASURES: dict[str, Measure] = {}
"""All measures by name, in the order in which the areas were imported."""


def measure(
    name: str, *, unit: str | None = None, per: str | None = None, source: str | None = None, limit_s: float = LIMIT_S
) -> Callable[[Callable[..., Json]], Callable[..., Json]]:
    """Registers a function as the measurement of a fact.

    Args: `unit` of the value; `per`, the kind of device that the value is keyed by; `source`, where it comes from,
    for people; `limit_s`, after which it counts as failed.
    Raises ValueError where the name is taken: one fact has one function.
    """

    def register(function: Callable[..., Json]) -> Callable[..., Json]:
        if name in MEASURES:
            raise ValueError(f"{name} is measured twice; give one of the two another name")
        wants = tuple(inspect.signature(function).parameters)
        MEASURES[name] = Measure(name, function, unit, per, source, limit_s, wants)
        return function

    return register
