"""What a step's boundary fixes, so that a run can go on from it exactly, even after a step that failed half way."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime.order import seed_of

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


class Boundary:
    """Marks boundaries, and says whether the state is still that of the last one.

    At each, the random generators of Python, NumPy, torch and the GPU are seeded from the run's seed, the step and the
    rank: so what a step draws does not depend on what was drawn before it, in another start or by a step that failed.
    A forward pass moves the running statistics of normalization: their values at the boundary are kept. What an
    optimizer began to update cannot be undone.
    """

    def __init__(self, model: "Module", optimizers: "Sequence[Optimizer]", seed: int, rank: int) -> None:
        from torch.nn.modules.batchnorm import _NormBase

        self.intact = True
        """Whether no optimizer has begun an update since the last boundary."""
        self._seed, self._rank = seed, rank
        self._statistics = [
            buffer for module in model.modules() if isinstance(module, _NormBase) for buffer in module.buffers()
        ]
        self._kept = [each.clone() for each in self._statistics]
        self._hooks = [each.register_step_pre_hook(self._update_begins) for each in optimizers]

    def at(self, step: int) -> None:
        """The boundary after `step`. About 50 microseconds, and a copy of the statistics where they are."""
        import numpy as np
        import torch

        self.intact = True
        for kept, now in zip(self._kept, self._statistics, strict=True):
            kept.copy_(now)
        seed = seed_of(seed_of(self._seed, step), self._rank)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        torch.manual_seed(seed)

    def restore(self) -> None:
        """Puts the statistics back to what they were at the boundary."""
        import torch

        with torch.no_grad():
            for kept, now in zip(self._kept, self._statistics, strict=True):
                now.copy_(kept)

    def close(self) -> None:
        """Takes the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def _update_begins(self, *_: Any) -> None:
        self.intact = False
