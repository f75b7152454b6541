"""A loss that is no number or leaves its history: skip the batch, go back to a checkpoint, or stop. Pure.

The decision is one rank's; the action is ordered, so that the highest over all ranks is the one they share.
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
    `roll_backs` of these to stop. `soon`: bad within as many steps after a checkpoint was loaded, on data that was
    good before, the checkpoint itself is suspected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on_nan: Literal["skip", "roll_back", "stop"] = "skip"
    on_spike: Literal["go", "skip", "roll_back", "stop"] = "skip"
    spike: float = Field(gt=0, default=10.0)
    window: int = Field(ge=2, default=200)
    history: int = Field(ge=2, default=20)
    skips: int = Field(ge=0, default=3)
    roll_backs: int = Field(ge=0, default=2)
    soon: int = Field(ge=0, default=5)


@dataclass(frozen=True)
class Course:
    """How the loss has gone. `losses`: the good steps with theirs; `bad`: steps whose batches are left out; `loaded`:
    the step that was last resumed from.
    """

    losses: tuple[tuple[int, float], ...] = ()
    in_a_row: int = 0
    roll_backs: int = 0
    bad: frozenset[int] = frozenset()
    loaded: int = 0


@dataclass(frozen=True)
class Judgement:
    """`older`: roll back further than the newest checkpoint, which is suspected. `course`: to judge the next with."""

    action: Action
    reason: str
    course: Course
    older: bool = False


def judge(config: LossConfig, course: Course, step: int, loss: float) -> Judgement:
    """What to do about the loss of `step`, before the optimizer uses its gradients. Never raises."""
    if step in course.bad:
        return Judgement(Action.SKIP, f"step {step} was bad before", course)
    reason, wanted = _bad(config, course, loss)
    if wanted is Action.GO:
        losses = (*course.losses, (step, loss))[-config.window :]
        return Judgement(Action.GO, reason, replace(course, losses=losses, in_a_row=0))
    course = replace(course, in_a_row=course.in_a_row + 1, bad=course.bad | {step})
    if wanted is Action.SKIP and course.in_a_row > config.skips:
        wanted, reason = Action.ROLL_BACK, f"{reason}, the {course.in_a_row}th in a row"
    if wanted is Action.ROLL_BACK:
        course = replace(course, roll_backs=course.roll_backs + 1, in_a_row=0)
        if course.roll_backs > config.roll_backs:
            return Judgement(Action.STOP, f"{reason}, after {config.roll_backs} roll-backs", course)
    older = wanted is Action.ROLL_BACK and course.loaded > 0 and step - course.loaded <= config.soon
    return Judgement(wanted, reason, course, older)


def resumed(course: Course, step: int) -> Course:
    """After the checkpoint of `step` was loaded: what is bad stays known, the losses after it are forgotten."""
    return replace(course, losses=tuple(each for each in course.losses if each[0] <= step), in_a_row=0, loaded=step)


def _bad(config: LossConfig, course: Course, loss: float) -> tuple[str, Action]:
    if not math.isfinite(loss):
        return f"the loss is {loss}", Action[config.on_nan.upper()]
    if len(course.losses) < config.history:
        return "", Action.GO
    losses = [each for _, each in course.losses]
    middle = statistics.median(losses)
    # 1.4826 median absolute deviations are a standard deviation of normal values.
    spread = 1.4826 * statistics.median(abs(each - middle) for each in losses)
    far = (loss - middle) / max(spread, 1e-12 + 1e-6 * abs(middle))
    if far <= config.spike:
        return "", Action.GO
    return f"the loss {loss:.6g} is {far:.1f} deviations above {middle:.6g}", Action[config.on_spike.upper()]
