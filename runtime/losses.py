"""What all ranks do about a loss that went bad: judged by each, decided by the worst."""

from typing import Any

from runtime.control import Control
from runtime.events import Tell, silence
from runtime.failures.loss import Action, Course, LossConfig, LossError, judge, resumed, wish


class Losses:
    """Judges each step's loss before the update. All ranks ask together."""

    def __init__(self, config: LossConfig, control: Control, step: int, tell: Tell = silence) -> None:
        self._config, self._control, self._tell = config, control, tell
        self._course = resumed(Course(), step)
        self.back: int | None = None
        """Set where the run is to go back: to a checkpoint of an earlier step than this."""

    def accept(self, step: int, loss: Any) -> bool:
        """Whether to use the gradients of `step`. Raises LossError on all ranks where the policy is to stop."""
        value = float(loss.detach() if hasattr(loss, "detach") else loss)
        wanted, reason = wish(self._config, self._course, step, value)
        # One number for the worst wish and for who has it.
        place = self._control.place
        (highest,) = self._control.highest(wanted * place.world + place.rank)
        worst, rank = Action(highest // place.world), highest % place.world
        known = step in self._course.bad
        found = judge(self._config, self._course, step, value, worst)
        self._course, self.back = found.course, found.before
        if found.action is Action.GO:
            return True
        reason = reason or f"it is bad on rank {rank}"
        if found.action is Action.STOP:
            limit = self._config.roll_backs
            after = f", after {limit} roll-backs" if found.course.roll_backs > limit else ""
            raise LossError(f"step {step}: {reason}{after} · look at the data before it and the learning rate")
        bad = None if known else rank
        self._tell("loss.skipped", step=step, bad_rank=bad, reason=reason, rolls_back=self.back is not None)
        return False

    def went_back(self, step: int) -> None:
        """Notes that the checkpoint of `step` was loaded."""
        self._course, self.back = resumed(self._course, step), None
