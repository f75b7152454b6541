"""The runtime in Accelerate: a Run that knows what `prepare` wrapped.

    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    with AcceleratedRun(accelerator, config, model=model, optimizer=optimizer, scheduler=scheduler, data=loader) as run:
        for batch in run.batches():
            with accelerator.accumulate(model):
                …
            run.step(loss=loss)

The loader is not prepared: the run places its batches on the device, and knows its place in them.
"""

from collections.abc import Iterator
from typing import Any

from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.optimizer import AcceleratedOptimizer  # type: ignore[import-untyped]
from accelerate.scheduler import AcceleratedScheduler  # type: ignore[import-untyped]
from accelerate.utils import send_to_device  # type: ignore[import-untyped]

from runtime.config import ConfigError, Told
from runtime.run import Run


class AcceleratedRun(Run):
    """A Run whose `step` counts only where the optimizer stepped, as `accelerator.accumulate` decides: with `batch` in
    the configuration after as many batches as this number of ranks needs."""

    def __init__(self, accelerator: Accelerator, config: Told, *, optimizer: Any = None, **parts: Any) -> None:
        self.accelerator = accelerator
        parts.setdefault("scaler", accelerator.scaler)
        super().__init__(config, optimizer=_bare(optimizer), **parts)
        if self.config.batch is not None:
            _follow_world(accelerator, self.share.accumulate, [*self.training.named.values()])

    def batches(self) -> Iterator[Any]:
        """This rank's batches on its device."""
        for batch in super().batches():
            yield send_to_device(batch, self.accelerator.device, non_blocking=True)

    def step(self, loss: Any = None, **more: Any) -> None:
        """The boundary of a step, or nothing while gradients are still being gathered."""
        if self.accelerator.sync_gradients:
            super().step(loss, **more)


def _follow_world(accelerator: Accelerator, accumulate: int, parts: list[Any]) -> None:
    """Has Accelerate accumulate as many batches as a step has. Raises ConfigError for a scheduler that it would step
    once for each process, so faster in a larger world."""
    prepared = [each for each in parts if isinstance(each, AcceleratedScheduler)]
    if any(each.step_with_optimizer and not each.split_batches for each in prepared):
        raise ConfigError(
            "scheduler: Accelerate steps a prepared one once for each process, but `batch` in the run's configuration "
            "keeps the steps at any number of them · do not prepare it, and step it where accelerator.sync_gradients"
        )
    accelerator.gradient_accumulation_steps = accumulate


def _bare(optimizer: Any) -> Any:
    if isinstance(optimizer, list | tuple):
        return [_bare(each) for each in optimizer]
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
