"""How long what waits for storage may take, so that a run that is to be killed ends before it is."""

import time

from runtime.config import RunConfig
from runtime.stops.stop import Stopper


class Limits:
    """Seconds, each as it is now: a signal that comes meanwhile leaves less."""

    def __init__(self, config: RunConfig, stopper: Stopper) -> None:
        self._config, self._stopper = config, stopper

    @property
    def boundary_s(self) -> float:
        """For a boundary that waits for a save: each part has a limit of its own."""
        config = self._config
        return 2 * config.checkpoints.save_limit_s + config.stops.meeting_s + config.watchdog.limit_s

    @property
    def save_s(self) -> float:
        """For the last save."""
        return self._left(self._config.checkpoints.save_limit_s, self._config.stops.teardown_s)

    @property
    def emergency_s(self) -> float:
        """For a save after a failure."""
        return self._left(self._config.checkpoints.emergency_limit_s, self._config.stops.teardown_s)

    @property
    def closing_s(self) -> float:
        """For the next of what closes, where storage hangs: half of what is left, since more comes after it."""
        return self._left(2 * self._config.checkpoints.stall_limit_s) / 2

    def _left(self, most_s: float, reserved_s: float = 0.0) -> float:
        """`most_s`, or as much of it as the grace or the deadline leaves until `reserved_s` before its end."""
        killed = self._stopper.killed()
        return most_s if killed is None else max(0.0, min(most_s, killed - time.monotonic() - reserved_s))
