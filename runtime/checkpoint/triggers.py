"""When to save. Pure: times are arguments, in seconds of one clock.

Clocks differ between ranks: one rank asks, and the others are told.
"""

import math

from pydantic import BaseModel, ConfigDict, Field


class Triggers(BaseModel):
    """A save is due as soon as one of these says so. All unset: only stops and failures save. What comes before a
    deadline is a stop, which saves (runtime.stops)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every_steps: int | None = Field(default=None, ge=1)
    every_s: float | None = Field(default=None, gt=0)
    by_failures: bool = False
    """At Young's interval, from the measured stall and the failure rate."""
    between_failures_s: float = Field(default=8 * 3600.0, gt=0)
    """Mean time between failures of the whole job before any was seen. Meta's 1,024 GPU jobs: 7.9 h (HPCA 2025)."""
    least_s: float = Field(default=10.0, ge=0)
    """Young's interval is not taken below this."""


class Progress(BaseModel):
    """Where the job is. `saved_step` and `saved_s`: when the last save began, or else the job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    now_s: float
    saved_step: int
    saved_s: float
    stall_s: float = 0.0
    """How long a save holds training up."""
    save_s: float = 0.0
    """How long a save takes from its begin to its commit."""
    failures: int = 0
    """How often the job failed in `observed_s` seconds, over all its attempts."""
    observed_s: float = 0.0


def due(triggers: Triggers, progress: Progress) -> str:
    """Why a save is due at this step's boundary; empty where none is. Never twice at one step."""
    if progress.step <= progress.saved_step:
        return ""
    since_s = progress.now_s - progress.saved_s
    if triggers.every_steps and progress.step // triggers.every_steps > progress.saved_step // triggers.every_steps:
        return "steps"
    if triggers.every_s and since_s >= triggers.every_s:
        return "time"
    if triggers.by_failures and progress.stall_s > 0:
        mean_s = between_failures_s(triggers.between_failures_s, progress.observed_s, progress.failures)
        # A save cannot begin before the last one has ended.
        if since_s >= max(young_s(progress.stall_s, mean_s), triggers.least_s, progress.save_s):
            return "failures"
    return ""


def young_s(stall_s: float, between_s: float) -> float:
    """The interval that loses least: the square root of twice the stall times the mean time between failures.

    Young 1974. The cost is the stall, not the time of writing; where it nears the time between failures, that is it.
    """
    return min(math.sqrt(2 * stall_s * between_s), between_s)


def between_failures_s(expected_s: float, observed_s: float, failures: int) -> float:
    """Mean time between failures: what was observed, with the expectation counting as one failure."""
    return (expected_s + observed_s) / (1 + failures)
