"""The whole loop, for who wants to write none: a model, a loss, data and a configuration.

ResilientTrainer(config, model, loss, data).fit()
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runtime.checkpoint.state import Stateful
from runtime.config import Told, load
from runtime.connect import connect
from runtime.data import adopt
from runtime.run import Run


class ResilientTrainer:
    """Trains `model` on `data` in as many processes as torchrun or srun started, on GPUs where there are any.

    Args: loss, from the model and one batch to a scalar, `(model, batch) -> loss`; data, a DataLoader with a rank's
    batch size, or Batches; optimizer, from parameters, AdamW by default; scheduler, from the optimizer, stepped once a
    step; clip, the largest norm of the gradient; extra, as Run's. Raises ConfigError, DataError.
    """

    def __init__(
        self,
        config: Told,
        model: nn.Module,
        loss: Callable[[nn.Module, Any], Tensor],
        data: Any,
        *,
        optimizer: Callable[[Any], torch.optim.Optimizer] = torch.optim.AdamW,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        clip: float | None = None,
        extra: Mapping[str, Stateful] | None = None,
    ) -> None:
        self.config = load(config)
        here = connect(seed=self.config.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.loss, self.clip = loss, clip
        wrapped = DistributedDataParallel(self.model) if here.world > 1 else self.model
        self.wrapped: nn.Module = wrapped
        self.optimizer = optimizer(self.model.parameters())
        self.scheduler = scheduler(self.optimizer) if scheduler is not None else None
        self.run = Run(
            self.config,
            model=wrapped,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            data=adopt(data, seed=self.config.seed, place=here, batch=self.config.batch),
            extra=extra,
        )

    def fit(self) -> None:
        """Trains until the run is done. Where it stops or fails, the process ends with the run's exit code."""
        run, parameters = self.run, list(self.model.parameters())
        with run:
            self.wrapped.train()
            loss: Any = 0.0
            for batch in run.batches():
                with run.phase("forward"):
                    part = self.loss(self.wrapped, _on(self.device, batch)) / run.share.accumulate
                with run.phase("backward"):
                    part.backward()
                loss = loss + part.detach()
                if run.gathering:
                    continue
                norm = nn.utils.clip_grad_norm_(parameters, self.clip) if self.clip is not None else None
                with run.phase("optimizer"):
                    if run.accepts(loss):
                        self.optimizer.step()
                    if self.scheduler is not None:
                        self.scheduler.step()
                    self.optimizer.zero_grad()
                run.step(loss=loss, grad_norm=norm)
                loss = 0.0


def _on(device: torch.device, batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: _on(device, each) for name, each in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [_on(device, each) for each in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch
