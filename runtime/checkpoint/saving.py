"""One save in the background: written with retries, made whole by the leaders, its outcome kept until asked for."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import JsonValue

from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.format import CheckpointError, Part
from runtime.checkpoint.retention import Stored, expendable
from runtime.checkpoint.snapshot import Copy
from runtime.checkpoint.tier import Blob, PartsMissingError
from runtime.checkpoint.tiers import Level, described, passing
from runtime.events import Tell
from runtime.place import Place

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """How a save ended: `levels` have it, and `error` says why one has not."""

    step: int
    levels: tuple[str, ...]
    error: str
    bytes: int
    seconds: float

    @property
    def safe(self) -> bool:
        """Whether every tier that was meant to have it has it."""
        return not self.error


@dataclass
class Job:
    """What is to be written. `ready` returns when the bytes of `copies` are there."""

    step: int
    turn: int
    metric: float | None
    levels: Sequence[Level]
    copies: Sequence[Copy]
    shared: frozenset[int]
    """Which of the copies go to a tier that holds each element once; the others hold what their node's ranks hold."""
    values: Mapping[str, JsonValue]
    ready: Callable[[], None]
    thread: threading.Thread | None = None
    done: threading.Event = field(default_factory=threading.Event)
    outcome: Outcome | None = None
    hopeless: bool = False
    """Whether a rank has failed to write its part for good: nobody need wait for the others any longer."""
    given_up: bool = False
    """Whether the job ends before it: what fails after that is no failure of storage."""

    def blobs(self, level: Level) -> Iterator[Blob]:
        """What this rank writes to a level."""
        for at, each in enumerate(self.copies):
            if not level.whole or at in self.shared:
                yield Blob(
                    each.name, each.dtype, each.shape, each.box.offset, each.box.extent, each.buffer, lasting=True
                )


def start(job: Job, config: CheckpointConfig, place: Place, tell: Tell) -> None:
    """Has a thread write the job."""

    def work() -> None:
        began = time.monotonic()
        deadline = began + config.save_limit_s
        done, error, size = [], "", sum(len(each.buffer) for each in job.copies)
        try:
            job.ready()
            for level in job.levels:
                try:
                    _level(job, level, config, place, tell, deadline)
                    done.append(level.name)
                except CheckpointError as wrong:
                    error = error or f"{level.name}: {wrong}"
                    continue
                if level.leads:
                    _tidy(job, level, config, tell)
        except Exception as wrong:  # an outcome, never a thread's traceback that nobody reads
            error = f"{type(wrong).__name__}: {wrong}"
        job.outcome = Outcome(job.step, tuple(done), error, size, time.monotonic() - began)
        if error and job.given_up:
            tell("checkpoint.given_up", step=job.step, levels=done)
        elif error:
            tell("checkpoint.failed", step=job.step, reason=error, levels=done, policy=config.on_failure)
        else:
            tell("checkpoint.saved", step=job.step, levels=done, bytes=size, seconds=job.outcome.seconds)
        job.done.set()

    job.thread = threading.Thread(target=work, name=f"muster-save-{job.step}", daemon=True)
    job.thread.start()


def _level(job: Job, level: Level, config: CheckpointConfig, place: Place, tell: Tell, deadline: float) -> None:
    """Writes this rank's part, and waits until the leader has made the checkpoint whole."""

    def write() -> Part:
        return level.tier.begin(job.step, place, job.turn).write(job.blobs(level), job.values)

    def stands() -> bool:
        # Of a try that failed after it was done, the file has another name.
        return level.tier.holds(part) or committed(level, job.step, job.turn, place.attempt)

    def commit() -> None:
        if stands():
            level.tier.settle()
            return
        level.tier.commit(
            job.step,
            place,
            max(0.0, deadline - time.monotonic()),
            turn=job.turn,
            ranks=level.ranks,
            whole=level.whole,
            metric=job.metric,
            values={"turn": job.turn},
            hopeless=lambda: job.hopeless,
            **described(config),
        )

    def wait() -> None:
        """Until the leader has committed."""
        pause_s = 0.01
        while not stands():
            if time.monotonic() > deadline or job.hopeless:
                raise PartsMissingError(f"{level.tier.folder}: step {job.step} was not committed · see the other ranks")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)

    part = _retried(write, job.step, config, tell, deadline)
    _retried(commit if level.leads else wait, job.step, config, tell, deadline)


def committed(level: Level, step: int, turn: int, attempt: str) -> bool:
    """Whether this very save is a checkpoint that readers see."""
    if step not in level.tier.steps():
        return False
    try:
        manifest = level.tier.read_manifest(step)
    except CheckpointError:
        return False
    return manifest.attempt == attempt and manifest.values.get("turn") == turn


def _retried(call: Callable[[], T], step: int, config: CheckpointConfig, tell: Tell, deadline: float) -> T:
    """Calls again after an error that may pass, with longer and longer pauses. Raises the last one."""
    tried = 0
    while True:
        try:
            return call()
        except CheckpointError as error:
            pause_s = config.retry_s * 2**tried
            if not passing(error) or tried == config.retries or time.monotonic() + pause_s > deadline:
                raise
            tell("checkpoint.retried", step=step, reason=str(error), pause_s=pause_s)
            time.sleep(pause_s)
            tried += 1


def _tidy(job: Job, level: Level, config: CheckpointConfig, tell: Tell) -> None:
    """Removes what need not stay, once the new checkpoint is proven. It stands, whatever becomes of this."""
    try:
        level.tier.verify(job.step, deep=config.read_back)
        for step in expendable(config.keep, [stored(level, step) for step in level.tier.steps()]):
            level.tier.remove(step)
    except CheckpointError as wrong:
        tell("checkpoint.untidy", step=job.step, reason=str(wrong))


def stored(level: Level, step: int) -> Stored:
    """What retention needs to know. A checkpoint whose files are not what its manifest says does not count as kept."""
    try:
        return Stored(step=step, metric=level.tier.verify(step, deep=False).metric, verified=True)
    except CheckpointError:
        return Stored(step=step)
