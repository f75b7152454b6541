"""Whether the job should stop, agreed over all ranks at the boundary between two steps."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from runtime.control import Control, PeerLostError
from runtime.events import Tell, silence
from runtime.exits import Exit
from runtime.place import Place
from runtime.stops.bounded import HungError, bounded
from runtime.stops.deadline import Deadline, deadline
from runtime.stops.signals import STOPPING, Signals, watch

ASKED, DEADLINE, PEER_DONE = "asked", "deadline", "peer_done"
REASONS = (*(each.name for each in STOPPING), DEADLINE, ASKED)
"""What a rank may stop for. PEER_DONE is what the others see when one has left its loop before them."""

KILLING = (signal.SIGTERM, signal.SIGINT)
"""Those that whoever sent them follows up with SIGKILL."""

AT_ONCE_S = 1.0
"""Steps at least this long wait for their agreement, about a millisecond; shorter ones read it a step later."""

SPARE = 1.5
"""A save before a deadline is given this times the time of the last: the end of a job is when others write too."""

NEVER_MS = 1 << 50
"""Stands for no limit, and for a step that a rank does not have: beyond any real one, and safe to negate."""


class StopConfig(BaseModel):
    """How the job stops. All times in seconds.

    `grace_s`: from SIGTERM or SIGINT until whoever sent it kills. By default torchrun's where the environment tells
    it, else the 30 that torchrun, Kubernetes (terminationGracePeriodSeconds) and Slurm (KillWait) start from. SIGUSR1
    and SIGUSR2 come ahead of a deadline and set none. `save_s`: a save's time before one was measured. `meeting_s`:
    how long a rank waits for the others at the end, whose last save may still be under way; less where the grace
    leaves less. `teardown_s`: what the end of the process groups may take. `margin_s`: how much earlier than necessary
    a deadline stops. `limit_s`: the job's own limit, from the Stopper's start.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_s: float | None = Field(gt=0, default=None)
    save_s: float = Field(ge=0, default=0.0)
    meeting_s: float = Field(gt=0, default=60.0)
    teardown_s: float = Field(gt=0, default=5.0)
    margin_s: float = Field(ge=0, default=10.0)
    limit_s: float | None = Field(gt=0, default=None)


Heard = Callable[[int, float, float | None], None]
"""A step, the longest time that a rank took for the one before it, and the shortest that a rank was in communication
in it, of those that measured it. Seconds."""


@dataclass(frozen=True)
class Stop:
    """The agreement to stop after `step`; the same on every rank.

    `reasons`: of REASONS, or PEER_DONE alone. `left_s`: until the job is killed, on the rank that has least; None if
    nobody said when. `save`: whether a save fits into that; if not, the last good checkpoint is what there is.
    """

    step: int
    reasons: tuple[str, ...]
    left_s: float | None
    save: bool


class Stopper:
    """Watches for signals and the deadline, and agrees with all ranks when to stop. Made by every rank, once.

    Every rank calls `at_boundary` once for each step. On the way out it calls `finish`, after its last save. A rank
    that leaves its loop earlier than the others is answered by their stopping at their next boundary.
    """

    def __init__(
        self,
        config: StopConfig,
        place: Place,
        control: Control,
        tell: Tell = silence,
        signals: Signals | None = None,
        until: Deadline | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.place, self.control, self.tell = config, place, control, tell
        self.signals = watch() if signals is None else signals
        self.until = deadline(config.limit_s) if until is None else until
        self._clock = clock
        self._grace_s = config.grace_s or float(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") or 30)
        # Unix time and the monotonic clock drift apart where an administrator sets the time: compared once.
        self._until = None if self.until is None else self.until.at - time.time() + clock()
        self._asked = False
        self._pending: _Ballot | None = None
        self._agreed: _Agreed | None = None
        self._save_s, self._step_s = config.save_s, 0.0
        self._boundary: float | None = None
        self._stop: Stop | None = None
        self.heard: Heard = lambda _step, _step_s, _talked_s: None
        """Is told of each step that all ranks did, the same on all of them, when its agreement is read."""

    def ask(self) -> None:
        """Asks for a stop from within the program, on this rank or on all."""
        self._asked = True

    def saved(self, seconds: float) -> None:
        """Notes how long a whole save took, until it was committed: the stop leaves as much time."""
        self._save_s = seconds

    @property
    def wanted(self) -> bool:
        """Whether this rank has a reason to stop, agreed or not."""
        return any(self._reasons())

    def killed(self) -> float | None:
        """When this rank will be killed, on its clock, as far as it knows: a grace's end or the deadline."""
        came = [self.signals.came(number) for number in KILLING]
        ends = [at + self._grace_s for at in came if at is not None]
        return min(ends if self._until is None else [*ends, self._until], default=None)

    def at_boundary(self, step: int, wait: bool = False, talked_s: float | None = None) -> Stop | None:
        """After step `step`: the agreement to stop here, if there is one. With `wait`, at once and not a step later.
        `talked_s` is this rank's time in the step's communication, if it was measured, of which `heard` gets the least.

        Once there is a Stop, every later call returns it. Raises PeerLostError if a rank did not come within the
        control's limit, DesyncError if the ranks are at different steps.
        """
        if self._stop is not None:
            return self._stop
        now = self._clock()
        if self._boundary is not None:
            self._step_s = now - self._boundary
        if self._pending is not None and self._decide(self._read(), step):
            return self._stop
        self._pending = self._cast(step, talked_s=talked_s)
        slow = self._agreed is None or self._agreed.step_s >= AT_ONCE_S
        if wait or slow or self.place.world == 1:
            self._decide(self._read(), step)
        self._boundary = self._clock()
        return self._stop

    def finish(self, exit: Exit) -> Exit:
        """Meets the other ranks, ends the process groups, and returns the code that all of them leave with: the worst.

        Takes at most `meeting_s` and `teardown_s`. A rank that failed does not wait for its peers, who may be stuck in
        a collective with it, and a peer that does not come makes a DONE or a stop no less true. Never raises.
        """
        if exit in (Exit.DONE, Exit.RESUMABLE_STOP):
            try:
                exit = bounded(lambda: self._meet(exit), self._meeting_s(), "the ranks' last meeting")
            except (PeerLostError, HungError) as lost:
                self.tell("stop.peer_missing", reason=str(lost))
            except Exception as error:
                self.tell("stop.meeting_failed", reason=f"{type(error).__name__}: {error}")
        self.tell("stop.finished", exit=exit.name.lower(), code=int(exit))
        self._destroy()
        return exit

    def _cast(self, step: int | None, exit: Exit = Exit.DONE, talked_s: float | None = None) -> "_Ballot":
        """This rank's part in an agreement; without a step, it has left its loop."""
        killed = self.killed()
        left_s = None if killed is None else killed - self._clock()
        return _Ballot(self.control, self._reasons(), step, exit, left_s, self._save_s, self._step_s, talked_s)

    def _reasons(self) -> list[bool]:
        """Which of REASONS there are on this rank."""
        came = [self.signals.came(number) is not None for number in STOPPING]
        need_s = SPARE * self._save_s + 2 * self._step_s + self.config.teardown_s + self.config.margin_s
        due = self._until is not None and self._until - self._clock() <= need_s
        return [*came, due, self._asked]

    def _read(self) -> "_Agreed":
        ballot, self._pending = self._pending, None
        assert ballot is not None  # noqa: S101 – both callers have just looked
        self._agreed = agreed = ballot.read()
        if agreed.lowest_step != agreed.highest_step:
            raise DesyncError(
                f"the ranks are at different steps, from {agreed.lowest_step} to {agreed.highest_step} · "
                "every rank must call the step's end once for each step"
            )
        if not agreed.someone_left:
            self.heard(agreed.highest_step, agreed.step_s, agreed.talked_s)
        return agreed

    def _decide(self, agreed: "_Agreed", step: int) -> bool:
        """Only from what is agreed and the step, so that every rank decides the same."""
        reasons = agreed.reasons or ((PEER_DONE,) if agreed.someone_left else ())
        if not reasons:
            return False
        # Since the agreement began, the slowest rank's step has passed.
        left_s = None if agreed.left_s is None else agreed.left_s - (agreed.step_s if step > agreed.highest_step else 0)
        fits = left_s is None or left_s >= agreed.save_s + self.config.teardown_s
        self._stop = Stop(step, reasons, left_s, save=fits and not agreed.someone_left)
        self.tell("stop.agreed", step=step, reasons=list(reasons), left_s=left_s, save=self._stop.save)
        if not fits:
            self.tell(
                "stop.grace_too_short",
                left_s=left_s,
                save_s=agreed.save_s,
                advice="the last good checkpoint is used; give more grace, save more often, or make a save faster",
            )
        return True

    def _meet(self, exit: Exit) -> Exit:
        """Until every rank has left its loop: those that have not learn of it at their next boundary."""
        if self._pending is not None:
            self._read()
        while True:
            self._pending = self._cast(None, exit)
            agreed = self._read()
            if not agreed.someone_stays:
                return agreed.exit

    def _meeting_s(self) -> float:
        killed = self.killed()
        if killed is None:
            return self.config.meeting_s
        return max(0.0, min(self.config.meeting_s, killed - self._clock() - self.config.teardown_s))

    def _destroy(self) -> None:
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized():
            return
        try:
            bounded(dist.destroy_process_group, self.config.teardown_s, "destroy_process_group")
        except Exception as error:
            self.tell("stop.teardown_failed", reason=f"{type(error).__name__}: {error}")


class DesyncError(Exception):
    """The ranks do not do the same steps: a fault of the program, which starting it again does not mend."""


@dataclass(frozen=True)
class _Agreed:
    """What the ballots of all ranks come to. Steps are those of the ranks that are still in their loops."""

    reasons: tuple[str, ...]
    someone_left: bool
    someone_stays: bool
    exit: Exit
    lowest_step: int
    highest_step: int
    left_s: float | None
    save_s: float
    step_s: float
    talked_s: float | None


class _Ballot:
    """One agreement under way: a vector of which every rank learns the highest of each entry."""

    def __init__(
        self,
        control: Control,
        reasons: Iterable[bool],
        step: int | None,
        exit: Exit,
        left_s: float | None,
        save_s: float,
        step_s: float,
        talked_s: float | None = None,
    ) -> None:
        self._pending = control.begin_highest(
            *(int(each) for each in reasons),
            int(step is None),
            int(step is not None),
            int(exit),
            -NEVER_MS if step is None else step,
            -NEVER_MS if step is None else -step,
            -NEVER_MS if left_s is None else -_ms(left_s),
            _ms(save_s),
            _ms(step_s),
            -NEVER_MS if talked_s is None else -_ms(talked_s * 1000),
        )

    def read(self) -> _Agreed:
        """Waits for it. Raises PeerLostError."""
        values = self._pending.wait()
        flags, rest = values[: len(REASONS)], values[len(REASONS) :]
        left, stays, exit, highest, lowest, hurry, save, step, talked = rest
        return _Agreed(
            reasons=tuple(name for name, flag in zip(REASONS, flags, strict=True) if flag),
            someone_left=bool(left),
            someone_stays=bool(stays),
            exit=Exit(exit),
            lowest_step=-lowest if stays else 0,
            highest_step=highest if stays else 0,
            left_s=None if hurry == -NEVER_MS else -hurry / 1000,
            save_s=save / 1000,
            step_s=step / 1000,
            talked_s=None if talked == -NEVER_MS else -talked / 1e6,
        )


def _ms(seconds: float) -> int:
    return round(max(-NEVER_MS + 1, min(NEVER_MS - 1, seconds * 1000)))  # cut first: inf is no integer
