"""What all ranks do about a loss that went bad: judged by each, decided by the worst."""

from typing import Any

from runtime.control import Control
from runtime.events import Tell, silence
from runtime.failures.loss import Action, Course, LossConfig, LossError, judge, resumed


class Losses:
    """Judges each step's loss before the update. All ranks ask together."""

    def __init__(self, config: LossConfig, control: Control, step: int, tell: Tell = silence) -> None:
        self._config, self._control, self._tell = config, control, tell
        self._course = resumed(Course(), step)
        self.back: bool | None = None
        """Set where the run is to go back to a checkpoint: true to an older one than was loaded last."""

    @property
    def loaded(self) -> int:
        """The step that was resumed from last."""
        return self._course.loaded

    def accept(self, step: int, loss: Any) -> bool:
        """Whether to use the gradients of `step`. Raises LossError on all ranks where the policy is to stop."""
        found = judge(self._config, self._course, step, float(loss))
        self._course = found.course
        action, older = self._control.highest(int(found.action), int(found.older))
        if action == Action.GO:
            return True
        reason = found.reason or "on another rank"
        if action == Action.STOP:
            raise LossError(f"step {step}: {reason} · look at the data before it and the learning rate")
        if action == Action.ROLL_BACK:
            self.back = bool(older)
        self._tell("loss.skipped", step=step, reason=reason, rolls_back=action == Action.ROLL_BACK)
        return False

    def went_back(self, step: int) -> None:
        """Notes that the checkpoint of `step` was loaded."""
        self._course, self.back = resumed(self._course, step), None
