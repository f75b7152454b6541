"""One training run, from resuming to its exit code: joins data, checkpoints, stops, failures and telemetry.

    run = Run("run.yaml", model=model, optimizer=optimizer, data=loader)
    with run:
        for batch in run.batches():
            loss = ...; loss.backward(); optimizer.step()
            run.step(loss=loss)

Entering resumes from the newest checkpoint that verifies on every rank. Leaving saves, agrees with the other ranks, and
ends the process with the code that says what happened (runtime.exits), unless the run is done: then the code after it
goes on, without a process group.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from runtime.batch import Share, not_kept, shared
from runtime.boundary import Boundary, forget
from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.state import Stateful, Training
from runtime.config import RunConfig, Told, load
from runtime.control import Control
from runtime.data import Batches, adopt
from runtime.events import Tell
from runtime.exits import Exit
from runtime.failures.emergency import after
from runtime.failures.loss import LossError
from runtime.failures.replicas import ReplicaError
from runtime.failures.restarts import Restarts
from runtime.failures.watchdog import Watchdog
from runtime.gather import Gather
from runtime.limits import Limits
from runtime.losses import Losses
from runtime.place import Place, place
from runtime.rate import Rate
from runtime.replicas import Replicas
from runtime.schedule import Schedule
from runtime.stops.account import account
from runtime.stops.leave import leave
from runtime.stops.signals import watch
from runtime.stops.stop import Stop, Stopper
from runtime.telemetry import Telemetry
from runtime.telemetry.overlap import Overlap
from runtime.telemetry.waiting import Waiting

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


BEGIN_S = 24 * 3600.0
"""How long resuming may take where nobody kills it: each call to storage and each agreement has a limit of its own."""


class Run:
    """A run on this rank. All ranks make it with the same configuration and call the same methods in the same order.

    Args: config, made or as a mapping or the path of a YAML file (`runtime.config`); data, a DataLoader or
    `runtime.data.Batches`, or nothing for a run that makes its own (as in reinforcement learning); scheduler and
    scaler, as torch has them; extra, by name, what else changes and has state_dict() and load_state_dict().
    Raises ConfigError, DataError.
    """

    def __init__(
        self,
        config: Told,
        *,
        model: "Module",
        optimizer: "Optimizer | Sequence[Optimizer] | None" = None,
        scheduler: Stateful | None = None,
        scaler: Stateful | None = None,
        data: Any = None,
        extra: Mapping[str, Stateful] | None = None,
        here: Place | None = None,
    ) -> None:
        watch()
        self.config: RunConfig = load(config)
        self.place = here or place()
        self.data: Batches | None = None
        if data is not None:
            self.data = adopt(data, seed=self.config.seed, place=self.place, batch=self.config.batch)
        made = (self.data.batch, self.data.parts) if self.data is not None else None
        self.share: Share = shared(self.config.batch, self.place.world, made)
        """What a step is at this world size: how many micro-batches this rank adds up, and the batch over all ranks."""
        self._gather = Gather(self.share.accumulate if self.config.batch else None, model)
        self.training = Training(model, optimizer, scheduler, scaler, self.data, dict(extra or {}))
        self.number = 0
        """Steps that are done, over all starts of the run."""
        self.resumed = False
        self.stop: Stop | None = None
        self._saved: int | None = None
        """The step whose save was begun and has not failed."""
        self._stands: int | None = None
        """The step of the newest checkpoint that is known to be whole."""
        self._stream: Iterator[Any] | None = None
        self._useful = True

    def __enter__(self) -> "Run":
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SystemExit | GeneratorExit):
            self._close()  # the program's own way out
            return
        exit = self.end(error)
        if exit is not Exit.DONE:
            leave(exit)

    def begin(self) -> None:
        """Joins everything and resumes: `with run` does it. Leaves with the code of the failure where that fails."""
        try:
            self.control = Control(self.place, self.config.control_s)
            self.place = self.place.model_copy(update={"attempt": self.control.named(self.place.attempt)})
        except Exception as error:
            self._refuse(error, Telemetry(self.config.telemetry, self.place))
        self.telemetry = Telemetry(self.config.telemetry, self.place)
        self.tell: Tell = self.telemetry
        restarts: Restarts | None = None
        folder, stall_s = self.config.checkpoints.folder, self.config.checkpoints.stall_limit_s
        try:
            self._rate = Rate(self.training.optimizers, self.share.rate)
            self.stopper = Stopper(self.config.stops, self.place, self.control, self.tell)
            self.limits = Limits(self.config, self.stopper)
            history = folder / "starts.json"
            restarts = Restarts(self.config.restarts, history, self.place, self.control, self.tell, stall_s)
            self.restarts = restarts
            stacks, killed = folder / "stacks", self.stopper.killed
            self.watchdog = Watchdog(self.config.watchdog, self.place, stacks, self.tell, killed).start()
            with self.watchdog.patient(BEGIN_S):
                self._resume()
        except Exception as error:
            self._refuse(error, self.telemetry, restarts)
        self.boundary = Boundary(self.training.model, self.training.optimizers, self.config.seed, self.place.rank)
        self.boundary.at(self.number)
        self.schedule = Schedule(self.config.save, self.control, self.number)
        self.schedule.failures, self.schedule.observed_s = self.restarts.failures()
        self.losses = Losses(self.config.loss, self.control, self.number, self.tell)
        self.tell(
            "run.began",
            step=self.number,
            world=self.place.world,
            resumed=self.resumed,
            batch=self.share.batch,
            accumulate=self.share.accumulate,
        )
        if asked := not_kept(self.config.batch, self.share, self.place.world):
            self.tell("batch.not_kept", **asked, rates=self._rate.effective(self.training.optimizers))

    def _resume(self) -> None:
        self.checkpointer = Checkpointer(self.config.checkpoints, self.place, self.control, self.tell)
        self.restarts.begin(lambda: self.stopper.wanted)
        resumed = self.checkpointer.restore(self.training)
        if resumed is not None:
            self.number = self._saved = self._stands = resumed.step
            self.resumed = True
        self.restarts.resumed(self.number, lambda: self.stopper.wanted)
        self.replicas = Replicas(self.config.replicas, self.training.model, self.control, self.tell)
        self.replicas.begin(self.number)
        self.overlap = Overlap(self.training.model)
        on_host = all(each.device.type == "cpu" for each in self.training.model.parameters())
        every_s, by_phase = self.config.telemetry.waits_every_s, on_host and not self.overlap.there
        self.waiting = Waiting(every_s, self.control, self.telemetry.waited, by_phase)
        self.stopper.heard = self.waiting.heard

    @property
    def over(self) -> bool:
        """Whether the loop should end here: the work is done, or all ranks agreed to stop."""
        return self.stop is not None or self.done

    @property
    def done(self) -> bool:
        """Whether all steps or epochs asked for are done."""
        return (self.config.steps is not None and self.number >= self.config.steps) or (
            self.config.epochs is not None and self.data is not None and self.data.epoch >= self.config.epochs
        )

    @property
    def gathering(self) -> bool:
        """Whether the micro-batch just taken is not the last of its step: add up its gradients, and take the next."""
        return self._gather.more

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A part of the step, for telemetry: `with run.phase("forward"):`."""
        return self.telemetry.phase(name)

    def batches(self) -> Iterator[Any]:
        """This rank's batches, over all epochs, until the run is over or its data ends; with `batch` in the
        configuration micro-batches, of which `share.accumulate` are a step."""
        if self.data is None:
            raise RuntimeError("the run has no data · give data= to Run, or use run.steps()")
        while not self.over:
            with self.phase("data"):
                batch = next(self._batches(self.data), _END)
            if batch is _END:
                return
            self._gather.take()
            yield batch

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, from 0, until the run is over: for loops that make their own data."""
        while not self.over:
            yield self.number

    def step(
        self,
        loss: Any = None,
        *,
        grad_norm: Any = None,
        samples: int | None = None,
        tokens: int = 0,
        metric: float | None = None,
        batches: int | None = None,
    ) -> None:
        """The boundary of a step: what was done until here counts, and here the run may save, go back or stop.

        Args: loss and grad_norm, numbers or tensors of one; samples and tokens, this rank's own, for rates; metric, by
        which the best checkpoints are kept; batches, how many this step took where a framework takes them ahead.
        Raises PeerLostError, DesyncError, LossError, and what a save fails with where the policy is to stop; and
        RuntimeError after fewer micro-batches than a step has.
        """
        self._gather.end(batches)
        if not self._useful:
            forget(self.training.scaler)
        if self.losses.back is not None:
            self.telemetry.step_done(self.number + 1, loss=loss, grad_norm=grad_norm, useful=False)
            self._go_back(self.losses.back)
            return
        self.number += 1
        used = self.data.used(batches) if self.data is not None else 0
        self.boundary.at(self.number)
        rate = used // self.place.world if samples is None else samples
        done = self.telemetry.step_done(
            self.number,
            samples=rate,
            tokens=tokens,
            loss=loss,
            grad_norm=grad_norm,
            useful=self._useful,
            communication=self.overlap.sample(),
        )
        useful, self._useful = self._useful, True
        self.watchdog.beat(self.number)
        self._look_at_replicas()
        self._look_at_saves()
        self.stop = self.stopper.at_boundary(self.number, talked_s=self.waiting.done(self.number, done))
        # After a step that was left out, the weights are the old ones: saves of a bad stretch would push out good ones.
        if self.stop is None and self.schedule.due(self.number) and useful:
            with self.phase("checkpoint"):
                self._save(metric=metric)

    def accepts(self, loss: Any) -> bool:
        """Whether to use the gradients of this step; asked before the optimizer, on all ranks. False for a loss that is
        no number or a spike, by the policy: then the optimizer is left out, and `step` goes on, or back to a save. What
        the forward pass did to running statistics is undone.

        Waits for the device. Raises LossError, on all ranks, where the policy is to stop.
        """
        self._useful = self.losses.accept(self.number + 1, loss)
        if not self._useful:
            self.boundary.restore()
        return self._useful

    def end(self, error: BaseException | None = None) -> Exit:
        """Saves what is to be saved, meets the other ranks, and gives everything up: `with run` does it on leaving.

        Returns the code to leave with. Never raises.
        """
        self._stream = None
        with self.watchdog.patient(self.limits.boundary_s):
            exit = self._failed(error) if error is not None else self._ended()
            exit = self.stopper.finish(exit)
        self.watchdog.close()
        if exit is Exit.RESUMABLE_STOP and self.stop is not None:
            account(self.stop.step, self.stop.reasons)
        self.restarts.ended(exit, self.limits.closing_s)
        self._close()
        return exit

    def _refuse(self, error: Exception, telemetry: Telemetry, restarts: Restarts | None = None) -> NoReturn:
        """Leaves with the code of what the run could not begin for."""
        exit = after(error, tell=telemetry)
        if restarts is not None:
            restarts.ended(exit, self.limits.closing_s)
        telemetry.close()
        leave(exit)

    def _batches(self, data: Batches) -> Iterator[Any]:
        if self._stream is None:
            epochs, order = self.config.epochs, data.order
            self._stream = data.until(epochs * order.length if epochs is not None and order is not None else None)
        return self._stream

    def _save(self, metric: float | None = None, within_s: float | None = None) -> None:
        with self.watchdog.patient(self.limits.boundary_s):  # for the save before this one, if storage is slow
            stall_s = self.checkpointer.save(self.training, self.number, metric, within_s=within_s)
        self.schedule.saved(self.number, stall_s)
        self._saved = self.checkpointer.begun

    def _go_back(self, before: int) -> None:
        """To the newest checkpoint of an earlier step than `before`. Its data comes again, less what is bad."""
        was = self.number
        self._stream = None
        with self.watchdog.patient(self.limits.boundary_s), self.phase("checkpoint"):
            resumed = self.checkpointer.restore(self.training, before)
        self._look_at_saves()  # those of the way that is left
        if resumed is None:
            raise LossError(
                f"the loss is bad after step {was}, and there is no checkpoint from before step {before} · look at the "
                "data before it and the learning rate"
            )
        forget(self.training.scaler)
        self.number = self._saved = self._stands = resumed.step
        self.losses.went_back(resumed.step)
        self.waiting.back()
        self.schedule.back(resumed.step)
        self.boundary.at(self.number)
        self._useful = True
        self.tell("loss.rolled_back", step=resumed.step, left=was)

    def _look_at_replicas(self) -> None:
        try:
            self.replicas.look(self.number)
        except ReplicaError:
            self.boundary.spoil()
            raise

    def _look_at_saves(self) -> None:
        """How long saves take, for the stop and the schedule; and whether one failed for which the job is to stop."""
        for outcome in self.checkpointer.poll():
            if outcome.safe:
                self._stands = outcome.step
                self.schedule.save_s = outcome.seconds
                self.stopper.saved(outcome.seconds)
            elif outcome.step == self._saved:
                self._saved = None
        if self.checkpointer.must_stop:
            self.stopper.ask()

    def _ended(self) -> Exit:
        """The loop came to its end, or was stopped."""
        wanted = self.stop is None or self.stop.save
        try:
            if wanted and self._saved != self.number:
                self._save(within_s=self.limits.save_s)
            ended = self._finished()
            self._look_at_saves()
        except Exception as error:
            return after(error, tell=self.tell)
        if wanted and not ended:
            self.tell("checkpoint.failed", step=self.number, reason="it did not end before the process must")
        if wanted and not (ended and self._stands == self.number):
            return Exit.RESUMABLE_FAILURE  # the save's own events say why; an older checkpoint stands
        return Exit.DONE if self.stop is None or self.done else Exit.RESUMABLE_STOP

    def _finished(self) -> bool:
        """Waits for the save under way. A signal that comes meanwhile leaves it less time."""
        limit = time.monotonic() + self.limits.save_s
        while not self.checkpointer.finish(min(1.0, self.limits.save_s)):
            if time.monotonic() >= limit or self.limits.save_s <= 0:
                return False
        return True

    def _failed(self, error: BaseException) -> Exit:
        self._rate.restore()
        save = None if self._saved == self.number else self._emergency
        exit = after(error, save, self.limits.emergency_s, self.boundary.intact, self.tell)
        # A save under way is of an earlier step, and whole: without a newer one, it is what the next start has.
        self.checkpointer.finish(self.limits.emergency_s / 2)
        return exit

    def _emergency(self) -> None:
        self.boundary.restore()
        if not self.checkpointer.emergency(self.training, self.number, self.limits.emergency_s):
            raise CheckpointError("the emergency save did not come to stand · the last good checkpoint is used")

    def _close(self) -> None:
        self._rate.close()
        self.watchdog.close()
        self.checkpointer.close(self.limits.closing_s)
        self.waiting.close()
        self.control.close()
        self.telemetry.close(min(5.0, self.limits.closing_s))


_END = object()
