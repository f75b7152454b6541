"""What a rank does with an exception that ends its training: say what it is, save what can be saved, give the code."""

import time
from collections.abc import Callable
from enum import StrEnum

from runtime.events import Tell, silence
from runtime.exits import Exit
from runtime.failures.classify import Failure, classify
from runtime.stops.bounded import Bounded, HungError


class Rescue(StrEnum):
    """What became of the emergency save."""

    SAVED = "saved"
    NOT_TRIED = "not_tried"
    FAILED = "failed"
    TOO_SLOW = "too_slow"


def rescue(
    save: Callable[[], object], failure: Failure, limit_s: float, intact: bool = True, tell: Tell = silence
) -> Rescue:
    """Saves within `limit_s` seconds, where there is something left to save. Never raises.

    `save` must not communicate: peers may be gone, and communicators broken. `intact`: the state is that of a step's
    boundary; it is not while an optimizer's step is under way. A save that hangs is left behind in its thread, and its
    unfinished checkpoint is never committed.
    """
    if not (failure.treatment.saveable and intact):
        reason = "a step was half done" if failure.treatment.saveable else f"not after {failure.kind}"
        tell("emergency.not_tried", kind=str(failure.kind), reason=reason)
        return Rescue.NOT_TRIED
    began = time.monotonic()
    try:
        Bounded(save, "emergency save").wait(limit_s)
    except HungError as hung:
        tell("emergency.too_slow", limit_s=limit_s, reason=str(hung))
        return Rescue.TOO_SLOW
    except Exception as error:
        tell("emergency.failed", reason=f"{type(error).__name__}: {error}")
        return Rescue.FAILED
    tell("emergency.saved", seconds=time.monotonic() - began)
    return Rescue.SAVED


def after(
    error: BaseException,
    save: Callable[[], object] | None = None,
    limit_s: float = 60.0,
    intact: bool = True,
    tell: Tell = silence,
) -> Exit:
    """The code to leave with after `error`, and the emergency save before. Without `save`, none is tried."""
    failure = classify(error)
    tell(
        "failed",
        kind=str(failure.kind),
        text=failure.text,
        decided_by=failure.decided_by,
        advice=failure.treatment.advice,
        exception=error,
    )
    if save is not None:
        rescue(save, failure, limit_s, intact, tell)
    return failure.treatment.exit
