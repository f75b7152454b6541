"""How long the communication that hides in a backward pass takes, and how much of it does not hide.

DistributedDataParallel sums gradients while the backward pass still computes others. It measures that itself, with
events on the device, in its first ten iterations and in each hundredth: that is read here, and nothing is added.
"""

from dataclasses import dataclass
from typing import Any

FIRST, EVERY = 10, 100
"""Steps of this start at which it is read."""


@dataclass(frozen=True, slots=True)
class Communication:
    """Of one backward pass: from the first bucket's sum begun to the last one's ended, and what of it lay after the
    last gradient was computed.
    """

    seconds: float
    exposed_s: float


class Overlap:
    """What one rank's model says of its communication; nothing where it is not wrapped in DistributedDataParallel."""

    def __init__(self, model: Any) -> None:
        self._told = getattr(model, "_get_ddp_logging_data", None)
        self._steps = 0
        self._seen = -1

    @property
    def there(self) -> bool:
        """Whether the model hides communication and may say how much."""
        return self._told is not None

    def sample(self) -> Communication | None:
        """At each step's boundary: what was measured since the last time, every hundredth step. Never raises."""
        self._steps += 1
        if self._told is None or self._steps % EVERY not in (1, FIRST):
            return None
        try:
            told = self._told()
            iteration, whole_ns = int(told["iteration"]), int(told["backward_comm_time"])
            hidden_ns = int(told["backward_compute_comm_overlap_time"])
        except Exception:  # torch calls it a prototype
            return None
        if iteration == self._seen or whole_ns <= 0:
            return None
        self._seen = iteration
        return Communication(whole_ns / 1e9, max(0, whole_ns - hidden_ns) / 1e9)
