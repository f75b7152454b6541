"""Saves a training without holding it up, and puts it back from the newest checkpoint that every rank finds whole."""

import time
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from pydantic import JsonValue

from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.crypt import key as key_of
from runtime.checkpoint.format import CheckpointError, TornError
from runtime.checkpoint.layout import Layout
from runtime.checkpoint.restoring import Agreement, FoundTornError, Reading, Resumed
from runtime.checkpoint.saving import Job, Outcome, start
from runtime.checkpoint.snapshot import Arena, Snapshot
from runtime.checkpoint.state import Captured, Training, capture
from runtime.checkpoint.tiers import Tiers, Version, claimed
from runtime.control import Control
from runtime.events import Tell, silence
from runtime.place import Place

if TYPE_CHECKING:
    from torch.optim import Optimizer


class SaveFailedError(CheckpointError):
    """A save failed for good, and the policy is to stop. The older checkpoints stand."""


class Checkpointer:
    """The checkpoints of one job. All ranks call the same methods at the same step, but for `poll` and `emergency`.

    One save is in flight at a time. What a rank holds in host memory is one copy of what it writes.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        place: Place,
        control: Control,
        tell: Tell = silence,
    ) -> None:
        """Raises PeerLostError, and CheckpointError where a folder or the key cannot be used: HeldError, on its
        leader, where another job writes there."""
        # Leftovers of another start never mix with this one.
        self._place = place.model_copy(update={"attempt": control.named(place.attempt)})
        self._config, self._control, self._tell = config, control, tell
        self._tiers = Tiers(config, self._place, key_of(config.key) if config.key else None, tell)
        local_world = place.local_world if self._tiers.node is not None else place.world
        self._layout = Layout(self._place, local_world, config.piece_bytes)
        self._arena = Arena()
        self._snapshot = Snapshot(self._arena)
        self._turn = 0
        self._hooked: WeakSet[Optimizer] = WeakSet()
        self._guarded = False
        self.waited_s = 0.0
        """With `overlap`: how long the optimizer's steps have waited for copies in all."""
        self.begun: int | None = None
        """The step of the last save that was not left out."""
        self._job: Job | None = None
        self._outcomes: list[Outcome] = []
        self._failed, self._failed_turn = "", 0
        claimed(self._tiers, control, config.claim_limit_s)

    # Saving.

    def save(
        self,
        training: Training,
        step: int,
        metric: float | None = None,
        *,
        wait: bool = False,
        within_s: float | None = None,
    ) -> float:
        """Saves the state as it is after `step`; returns the seconds that training stood still for it.

        What stands still is the copy to host memory, and the wait for the save before this one if it is still under
        way: for `within_s` (by default, the configuration's `wait_limit_s`), after which this one is left out, on all
        ranks. With `wait`, returns when this one has ended too. Raises StateError for a
        state that cannot be saved, PeerLostError, and, on all ranks, SaveFailedError where the policy is to stop.
        """
        began = time.monotonic()
        busy = not self.finish(self._config.wait_limit_s if within_s is None else within_s)
        captured = capture(training, self._place.rank)
        self._guard(training)
        stop = bool(self._failed) and self._config.on_failure == "stop"
        busy_somewhere, stop_somewhere, changed, failed = self._control.highest(
            busy, stop, self._layout.changed(captured), self._failed_turn
        )
        if stop_somewhere:
            raise SaveFailedError(
                f"a save failed: {self._failed or 'on another rank'} · step {step} · "
                "mend the storage and start the job again, or set on_failure: go_on"
            )
        if busy_somewhere:
            # A thread that hangs in storage may still read the copies: they cannot be overwritten.
            if self._job is not None and self._job.turn == failed:
                self._job.hopeless = True
            self._tell("checkpoint.skipped", step=step, reason="an earlier save has not ended on every rank")
            return time.monotonic() - began
        if changed:
            self._layout.agree(captured, self._control)
        self._turn += 1
        self.begun = step
        job = self._job = self._begun(captured, step, metric)
        start(job, self._config, self._place, self._tell)
        if wait:
            self.finish(self._config.save_limit_s)
        stall_s = time.monotonic() - began
        self._tell("checkpoint.copied", step=step, seconds=stall_s, bytes=sum(len(each.buffer) for each in job.copies))
        return stall_s

    def _guard(self, training: Training) -> None:
        """With `overlap`: has the step of each optimizer wait until what it changes is copied."""
        optimizers = training.optimizers if self._config.overlap else []
        for each in optimizers:
            if each not in self._hooked:
                self._hooked.add(each)
                each.register_step_pre_hook(lambda *_: self._waited())
        self._guarded = bool(optimizers)

    def _waited(self) -> None:
        began = time.monotonic()
        self._snapshot.settle()
        self.waited_s += time.monotonic() - began

    def _begun(self, captured: Captured, step: int, metric: float | None) -> Job:
        """Copies the state, and says where it goes."""
        levels = list(self._tiers)
        if self._tiers.node is not None and (self._turn - 1) % self._config.shared_every:
            levels = [self._tiers.node]
        pairs = self._layout.sources(captured)
        if self._tiers.node is None:
            pairs = [each for each in pairs if each[1].shared]
        later = captured.equal if self._guarded else frozenset()
        values: dict[str, JsonValue] = {"rank": self._place.rank, "kind": "regular", "mine": captured.mine}
        if self._layout.leads:
            values["shared"] = captured.shared
        return Job(
            step,
            self._turn,
            metric,
            levels,
            self._snapshot.take([source for source, _ in pairs], later),
            frozenset(at for at, (_, share) in enumerate(pairs) if share.shared),
            values,
            self._snapshot.ready,
        )

    def poll(self) -> list[Outcome]:
        """How saves have ended since the last call. Never waits."""
        self._settle()
        found, self._outcomes = self._outcomes, []
        return found

    @property
    def must_stop(self) -> bool:
        """Whether a save of this rank failed and the policy is to stop: for the next agreement on a stop."""
        self._settle()
        return bool(self._failed) and self._config.on_failure == "stop"

    def finish(self, limit_s: float) -> bool:
        """Waits until no save is in flight; false where one still is after `limit_s` seconds."""
        if self._job is not None:
            self._job.done.wait(limit_s)
        self._settle()
        return self._job is None

    def _settle(self) -> None:
        job = self._job
        if job is not None and job.done.is_set() and job.outcome is not None:
            self._outcomes.append(job.outcome)
            self._failed = job.outcome.error
            self._failed_turn = job.turn if job.outcome.error else 0
            self._job = None

    # Putting back.

    def newest(self) -> int | None:
        """The newest step whose checkpoint is whole by every byte's hash, as all ranks agree; none if there is none.

        Raises as `restore`, but for StateError.
        """
        found: Version | None = Agreement(self._tiers, self._place, self._control, self._tell).find(self._checked)
        return found.step if found else None

    def _checked(self, version: Version, names: list[str]) -> Version:
        """Reads this rank's share of its nearest level against the hashes; all of one that it falls back to."""
        torn: list[tuple[str, int, str]] = []
        for name in names:
            level = self._tiers.named(name)
            try:
                parts = level.tier.read_manifest(version.step).parts
                at = level.ranks.index(self._place.rank)
                share = [part.rank for turn, part in enumerate(parts) if torn or turn % len(level.ranks) == at]
                level.tier.verify(version.step, ranks=share)
                return version
            except TornError as wrong:
                torn.append((name, version.step, str(wrong)))
        raise FoundTornError(torn)

    def restore(self, training: Training, before: int | None = None) -> Resumed | None:
        """Puts the newest checkpoint back that every rank finds whole, and sets those aside that are not.

        None where there is no checkpoint at all. `before`: only one of an earlier step; the later ones are set aside,
        for the run left that way, unless there is none. Until all ranks have read and checked all that they need,
        nothing is changed.
        Raises StateError where the checkpoint is of another training, StorageError where a rank cannot read,
        NothingWholeError where there are checkpoints and none is whole, PeerLostError.
        """
        # A save that hangs may still read its copies.
        arena = self._arena if self.finish(self._config.save_limit_s) else Arena()
        began, keep = time.monotonic(), 0
        agreement = Agreement(self._tiers, self._place, self._control, self._tell)
        reading = Reading(self._tiers, self._place, self._config, arena, training)
        try:
            found = agreement.find(reading.read, before)
            if found is None:
                return None
            if before is not None:
                agreement.set_aside(before, f"rolled back to before step {before}")
            keep = 2 * found.part.size
            return reading.install(found, began, self._tell)
        finally:
            # What this rank will write fits again; what it has read may be the whole of a model that all ranks share.
            arena.release(beyond=keep)

    # Ending.

    def emergency(self, training: Training, step: int, limit_s: float | None = None) -> bool:
        """A save after a failure, without any communicator and within a time limit; whether it stands.

        The state must be that of a step's end. Where each rank holds everything, the leader writes alone, or another
        rank if it does not come; where it holds shards, all ranks must come, with the same step. Never raises or hangs.
        """
        from runtime.checkpoint.emergency import saved

        limit_s = self._config.emergency_limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        self.finish(limit_s / 2)
        return saved(training, step, self._tiers.shared, self._layout, self._config, self._place, self._tell, deadline)

    def close(self, limit_s: float | None = None) -> None:
        """Gives up threads and folders, within `limit_s` (by default, `stall_limit_s`) for each tier.

        A save in flight is given up with them: `finish` first.
        """
        if self._job is not None:
            self._job.given_up = True
        self._tiers.close(self._config.stall_limit_s if limit_s is None else limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
