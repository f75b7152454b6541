"""The runtime in Lightning: a callback.

    resilient = Resilient(config)
    trainer = Trainer(callbacks=[resilient], enable_checkpointing=False, …)
    trainer.fit(model, train_dataloaders=resilient.data(loader))

It resumes before the first batch, saves and agrees at each optimizer step, and ends the process with the run's exit
code where the run stopped or failed. Where it is done, `fit` returns.
"""

# ruff: noqa: ARG002 - a callback is called with all there is
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from runtime.batch import share
from runtime.config import ConfigError, Told, load
from runtime.data import Batches, adopt
from runtime.exits import Exit
from runtime.place import place
from runtime.run import Run
from runtime.stops.leave import leave
from runtime.stops.signals import watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.checkpoint.state import Stateful


class Epochs:
    """Batches for a Trainer, which asks for an iterator each epoch. Without length: that of a resumed epoch differs."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class Resilient(Callback):
    """Joins a Trainer to a run. `config` as for Run; the Trainer's max_steps and max_epochs hold beside its own limits.

    Works with automatic optimization, one process a rank (torchrun or srun), and one set of training data. With `batch`
    in the configuration the Trainer accumulates as many batches as this number of ranks needs.
    """

    def __init__(self, config: Told, extra: "Mapping[str, Stateful] | None" = None) -> None:
        watch()
        self.config = load(config)
        self.run: Run | None = None
        self._extra = extra
        self._batches: Batches | None = None
        self._taken = 0
        self._handler: Any = None

    def data(self, loader: Any) -> Epochs:
        """What to give to `fit`, made of a DataLoader or Batches. Raises DataError."""
        self._batches = adopt(loader, seed=self.config.seed, place=place(), batch=self.config.batch)
        return Epochs(self._batches)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Sets what the Trainer accumulates, before the module asks for it. Raises ConfigError."""
        if self.config.batch is None or stage != "fit":
            return
        scheduled = any(isinstance(each, GradientAccumulationScheduler) for each in trainer.callbacks)  # type: ignore[attr-defined]
        needed = share(self.config.batch, place().world).accumulate
        if scheduled or trainer.accumulate_grad_batches not in (1, needed):
            raise ConfigError(
                "accumulate_grad_batches: the Trainer has its own, but `batch` in the run's configuration says how "
                "many batches are accumulated at each number of ranks · leave one of them out"
            )
        trainer.accumulate_grad_batches = needed

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Resumes, and sets the Trainer's own counts."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        schedulers = {f"scheduler-{at}": each.scheduler for at, each in enumerate(trainer.lr_scheduler_configs)}
        self.run = Run(
            self.config,
            model=pl_module,
            optimizer=trainer.optimizers,
            scaler=scaler,
            data=self._batches,
            extra={**schedulers, **(self._extra or {})},
        )
        self.run.begin()
        trainer.should_stop = self.run.over  # a run that was done is not trained further
        self._handler = signal.getsignal(signal.SIGTERM)
        loop = trainer.fit_loop
        loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = self.run.number
        epoch = self._batches.epoch if self._batches is not None else 0
        for count in (loop.epoch_progress.total, loop.epoch_progress.current):
            for name in ("ready", "started", "processed", "completed"):
                setattr(count, name, epoch)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes SIGTERM back: the Trainer's own handler talks to other ranks from within, and may hang."""
        signal.signal(signal.SIGTERM, self._handler)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The boundary, where the optimizer stepped in this batch."""
        assert self.run is not None  # noqa: S101 - on_fit_start made it
        self._taken += 1
        if trainer.global_step == self.run.number:
            return  # gradients are still being gathered
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self.run.step(loss=loss, batches=self._taken if self._batches is not None else None)
        self._taken = 0
        trainer.should_stop = trainer.should_stop or self.run.over

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """A failure: told apart, saved from where that makes sense, and left with its code."""
        if self.run is not None and not isinstance(exception, SystemExit):
            self._leave(self.run.end(exception))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """The end of `fit`."""
        if self.run is not None and stage == "fit":
            self._leave(self.run.end())

    def _leave(self, exit: Exit) -> None:
        self.run = None
        if exit is not Exit.DONE:
            leave(exit)
