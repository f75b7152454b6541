"""The learning rate's factor at a world size that cannot keep the batch: there while an optimizer steps, and only then.

Between steps the groups hold the rates that the training was given. So schedulers, whether they work by a ratio of the
last rate or from the first, and checkpoints never see the factor: it is not applied twice, does not get lost where a
run resumes, and means nothing to a world of another size.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from runtime.config import ConfigError

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Rate:
    """Multiplies the learning rate of every group of these optimizers while they step.

    Nothing is touched where the factor is 1. Raises ConfigError for a group that has no learning rate of its own.
    """

    def __init__(self, optimizers: "Iterable[Optimizer]", factor: float) -> None:
        self.factor = factor
        self._given: dict[Optimizer, list[Any]] = {}
        """Of optimizers within a step: what their groups held before it."""
        self._hooks: list[Any] = []
        for each in optimizers if factor != 1 else ():
            for at, group in enumerate(each.param_groups):
                if group.get("lr") is None:
                    raise ConfigError(
                        f"{type(each).__name__}, group {at}: it has no lr that could follow a batch of another size · "
                        "set batch.scale: none, or a number of ranks that keeps the batch"
                    )
            self._hooks += [
                each.register_step_pre_hook(lambda optimizer, *_: self._put_on(optimizer)),
                each.register_step_post_hook(lambda optimizer, *_: self._take_off(optimizer)),
            ]

    def effective(self, optimizers: "Iterable[Optimizer]") -> list[float]:
        """The rates that the next step uses, group by group. Waits for the device where a rate is a tensor."""
        return [float(group["lr"]) * self.factor for each in optimizers for group in each.param_groups if "lr" in group]

    def restore(self) -> None:
        """Takes the factor off where a step failed in the middle."""
        for each in list(self._given):
            self._take_off(each)

    def close(self) -> None:
        """Leaves the optimizers as they were."""
        self.restore()
        for each in self._hooks:
            each.remove()

    def _put_on(self, optimizer: "Optimizer") -> None:
        self._take_off(optimizer)  # a step within a step (a class that calls super().step), or after one that failed
        given = self._given[optimizer] = []
        for group in optimizer.param_groups:
            rate = group["lr"]
            if isinstance(rate, float | int):
                given.append(rate)
                group["lr"] = rate * self.factor
            else:  # a tensor, which a compiled or captured step knows by its place
                given.append(rate.clone())
                rate.mul_(self.factor)

    def _take_off(self, optimizer: "Optimizer") -> None:
        for group, rate in zip(optimizer.param_groups, self._given.pop(optimizer, ()), strict=False):
            if isinstance(rate, float | int):
                group["lr"] = rate
            else:
                group["lr"].copy_(rate)
