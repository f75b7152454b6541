"""A loss that is no number or leaves its history: skip the batch, go back to a checkpoint, or stop. Pure.

Each rank says what it wants done about its own loss (`wish`); the worst wish of all is what every rank judges by
(`judge`), so that they count alike and decide the same, whichever of them the bad batches fall to.
"""

import math
import statistics
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Action(IntEnum):
    """What to do with the step, mildest first."""

    GO = 0
    SKIP = 1
    """Leave the optimizer's step out; the data goes on."""
    ROLL_BACK = 2
    """Load the checkpoint before, and leave the bad batches out when the data comes to them again."""
    STOP = 3


class LossError(Exception):
    """The loss went bad beyond what the policy mends: a person has to look."""


class LossConfig(BaseModel):
    """`spike`: how far above the median of the last `window` losses, in robust standard deviations; at least
    `history` losses must be known. After `skips` skipped batches in a row the answer is to roll back, after
    `roll_backs` of these to stop; they are forgotten once the run is `window` steps beyond the checkpoint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on_nan: Literal["skip", "roll_back", "stop"] = "skip"
    on_spike: Literal["go", "skip", "roll_back", "stop"] = "skip"
    spike: float = Field(gt=0, default=10.0)
    window: int = Field(ge=2, default=200)
    history: int = Field(ge=2, default=20)
    skips: int = Field(ge=0, default=3)
    roll_backs: int = Field(ge=0, default=2)


@dataclass(frozen=True)
class Course:
    """How the loss has gone. `losses`: the good steps with this rank's own; the rest is the same on all ranks.

    `in_a_row`: steps that just went bad; `roll_backs`: those that count; `bad`: steps whose batches are left out;
    `reached`: the last good step; `loaded`: the step that was last resumed from.
    """

    losses: tuple[tuple[int, float], ...] = ()
    in_a_row: int = 0
    roll_backs: int = 0
    bad: frozenset[int] = frozenset()
    reached: int = 0
    loaded: int = 0


@dataclass(frozen=True)
class Judgement:
    """`before`: to roll back to a checkpoint of an earlier step than this. `course`: to judge the next with."""

    action: Action
    course: Course
    before: int | None = None


def wish(config: LossConfig, course: Course, step: int, loss: float) -> tuple[Action, str]:
    """What one rank wants done about its loss of `step`, before the optimizer uses its gradients; and why."""
    if step in course.bad:
        return Action.SKIP, f"step {step} was bad before"
    if not math.isfinite(loss):
        return Action[config.on_nan.upper()], f"the loss is {loss}"
    if len(course.losses) < config.history:
        return Action.GO, ""
    losses = [each for _, each in course.losses]
    middle = statistics.median(losses)
    # 1.4826 median absolute deviations are a standard deviation of normal values.
    spread = 1.4826 * statistics.median(abs(each - middle) for each in losses)
    far = (loss - middle) / max(spread, 1e-12 + 1e-6 * abs(middle))
    if far <= config.spike:
        return Action.GO, ""
    return Action[config.on_spike.upper()], f"the loss {loss:.6g} is {far:.1f} deviations above {middle:.6g}"


def judge(config: LossConfig, course: Course, step: int, loss: float, worst: Action) -> Judgement:
    """What all ranks do about `step`. `loss`: this rank's own; `worst`: the worst wish of all."""
    if worst is Action.GO:
        return Judgement(Action.GO, _went_well(config, course, step, loss))
    if step in course.bad:
        return Judgement(Action.SKIP, course)
    course = replace(course, in_a_row=course.in_a_row + 1, bad=course.bad | {step})
    action = Action.ROLL_BACK if worst is Action.SKIP and course.in_a_row > config.skips else worst
    if action is not Action.ROLL_BACK:
        return Judgement(action, course)
    course = replace(course, roll_backs=course.roll_backs + 1, in_a_row=0)
    if course.roll_backs > config.roll_backs:
        return Judgement(Action.STOP, course)
    return Judgement(Action.ROLL_BACK, course, _before(course, step))


def resumed(course: Course, step: int) -> Course:
    """After the checkpoint of `step` was loaded: what is bad stays known, the losses after it are forgotten."""
    return replace(course, losses=tuple(each for each in course.losses if each[0] <= step), in_a_row=0, loaded=step)


def _went_well(config: LossConfig, course: Course, step: int, loss: float) -> Course:
    return replace(
        course,
        losses=(*course.losses, (step, loss))[-config.window :],
        in_a_row=0,
        roll_backs=course.roll_backs if step - course.loaded <= config.window else 0,
        reached=max(course.reached, step),
    )


def _before(course: Course, step: int) -> int:
    """Where the checkpoint must lie before: the first bad step of those that end with `step`, since one that was saved
    among them holds the same weights; or the checkpoint loaded last, where that is suspected.
    """
    first = step
    while first - 1 in course.bad:
        first -= 1
    # Until the last good step, all is done again as it was: what was good and is bad now was loaded or computed wrong.
    # So it is with a checkpoint that gave no good step, if there was more than one.
    suspected = course.loaded > 0 and (step <= course.reached or step > first == course.loaded + 1)
    return min(first, course.loaded) if suspected else first
