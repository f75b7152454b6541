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

        self._model, self._optimizers, self._seed, self._rank = model, optimizers, seed, rank
        self._spoilt = False
        self._versions: list[int] = []
        self._statistics = [
            buffer for module in model.modules() if isinstance(module, _NormBase) for buffer in module.buffers()
        ]
        self._kept = [each.clone() for each in self._statistics]

    @property
    def intact(self) -> bool:
        """Whether no parameter, and nothing that an optimizer keeps, was written since the last boundary."""
        return not self._spoilt and self._versions == self._written()

    def spoil(self) -> None:
        """Says that the state is not worth saving, until the next boundary."""
        self._spoilt = True

    def at(self, step: int) -> None:
        """The boundary after `step`. About 100 microseconds for 1,000 parameters, and a copy of the statistics."""
        import numpy as np
        import torch

        self._spoilt, self._versions = False, self._written()
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

    def _written(self) -> list[int]:
        """How often each tensor was written in place, as torch counts it: no need to look at what is in it."""
        import torch

        tensors: list[torch.Tensor] = list(self._model.parameters())
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                tensors += [each for each in state.values() if isinstance(each, torch.Tensor)]
        return [each._version for each in tensors]


def forget(scaler: Any) -> None:
    """Has a gradient scaler forget that it was asked to unscale the gradients of a step that was left out: it would
    refuse the next. Its scale stays.
    """
    if getattr(scaler, "_scale", None) is not None:
        scaler.update(new_scale=scaler.get_scale())
