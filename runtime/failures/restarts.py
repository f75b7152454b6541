"""Starting again: after a wait that grows, and not for ever when nothing is gained. The history outlives processes."""

import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.storage import Storage
from runtime.control import Control
from runtime.events import Tell, silence
from runtime.exits import Exit
from runtime.place import Place

KEPT = 100
"""Starts that are remembered."""

LOOK_S = 0.5
"""How often the ranks ask each other, while they wait, whether one of them is to stop."""

FILE_BYTES = 1 << 20
"""More is not a history that this wrote."""


class NoProgressError(Exception):
    """As many starts as are allowed failed without progress."""


class RestartConfig(BaseModel):
    """`no_progress`: failed starts from the same step, or before they had one, after which another is refused; 3 is
    what NVIDIA's resiliency extension uses. The wait before the n-th start without progress is `wait_s` · 2^(n-2), at
    most `longest_wait_s`; the first is not waited for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    no_progress: int = Field(ge=1, le=KEPT, default=3)
    wait_s: float = Field(ge=0, default=5.0)
    longest_wait_s: float = Field(ge=0, default=300.0)


class Start(BaseModel):
    """One start of the job. `at`: Unix seconds; `step`: resumed from, None if it ended before; `exit`: None if it never
    said (killed).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: float
    step: int | None
    attempt: str
    exit: int | None = None


HISTORY = TypeAdapter(list[Start])


def decide(config: RestartConfig, history: list[Start], step: int | None) -> float:
    """Seconds to wait before the job starts at `step`, or before it resumes at all. Raises NoProgressError. Pure.

    Starts that ended with a stop are no failures, whoever stopped them, and neither help nor harm.
    """
    same = 0
    for start in reversed(history):
        if start.exit in (Exit.RESUMABLE_STOP, Exit.DONE):
            continue
        if start.step is not None and (step is None or start.step < step):
            break
        same += 1
    if same >= config.no_progress:
        where = "before they had resumed" if step is None else f"at step {step} failed without a new checkpoint"
        raise NoProgressError(
            f"{same} starts {'failed ' if step is None else ''}{where} · read why the last one did; "
            "then remove the history of restarts, or raise restarts.no_progress"
        )
    return min(config.wait_s * 2 ** (same - 1), config.longest_wait_s) if same else 0.0


class Restarts:
    """The history of a job in a file beside its checkpoints, kept by the leading rank.

    The file's folder must be there. A call that storage holds is given up after `stall_s`.
    """

    def __init__(
        self,
        config: RestartConfig,
        file: Path,
        place: Place,
        control: Control,
        tell: Tell = silence,
        stall_s: float = 120.0,
    ) -> None:
        self.config, self.file, self.place, self.control, self.tell = config, file, place, control, tell
        self._before: list[Start] = []
        self._own: Start | None = None
        self._waited_s = 0.0
        self._storage = Storage(stall_s)

    def begin(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Before anything is read, by every rank: waits where the starts before failed before they had resumed.

        The wait ends on all ranks where one of them is `stopped`. Raises NoProgressError on every rank. A history that
        cannot be read or written is told and does without.
        """
        if self.place.leads:
            self._before = self._read()
        self._note(Start(at=time.time(), step=None, attempt=self.place.attempt))
        self._hold_back(None, stopped)

    def resumed(self, step: int, stopped: Callable[[], bool] = lambda: False) -> None:
        """Before the first step after `step`, by every rank: waits as long as is due. Raises NoProgressError."""
        assert self._own is not None  # noqa: S101 - begin comes before
        self._note(self._own.model_copy(update={"step": step}))
        self._hold_back(step, stopped)

    def ended(self, exit: Exit, limit_s: float = 120.0) -> None:
        """Notes how this start ended, if it had begun and storage holds no call longer than `limit_s` seconds.

        Never raises.
        """
        if self._own is not None:
            self._storage.stall_s = min(self._storage.stall_s, limit_s)
            self._note(self._own.model_copy(update={"exit": int(exit)}))
        self._storage.close()

    def failures(self) -> tuple[int, float]:
        """How many starts have failed or were killed, and in how many seconds, as the leading rank knows it."""
        failed = sum(each.exit not in (Exit.RESUMABLE_STOP, Exit.DONE) for each in self._before)
        return failed, time.time() - self._before[0].at if self._before else 0.0

    def _note(self, own: Start) -> None:
        self._own = own
        if self.place.leads:
            self._write([*self._before, own])

    def _hold_back(self, step: int | None, stopped: Callable[[], bool]) -> None:
        wait_ms, refused = 0, ""
        if self.place.leads:
            try:
                wait_ms = max(0, round(1000 * (decide(self.config, self._before, step) - self._waited_s)))
            except NoProgressError as none:
                refused = str(none)
        wait_ms, no = self.control.highest(wait_ms, int(bool(refused)))
        if no:
            raise NoProgressError(refused or "the leading rank refuses another start without progress · read its log")
        if not wait_ms:
            return
        self._waited_s += wait_ms / 1000
        self.tell("restart.waits", seconds=wait_ms / 1000, step=step)
        until = time.monotonic() + wait_ms / 1000
        for _ in range(math.ceil(wait_ms / 1000 / LOOK_S)):  # as often on every rank
            time.sleep(max(0.0, min(LOOK_S, until - time.monotonic())))
            if self.control.highest(int(stopped()))[0]:
                return

    def _read(self) -> list[Start]:
        try:
            raw = self._storage.read(self.file, FILE_BYTES)
            return [] if raw is None else HISTORY.validate_json(raw)
        except (CheckpointError, ValueError) as error:
            self.tell("restart.history_unreadable", file=str(self.file), reason=str(error)[:500])
            return []

    def _write(self, history: list[Start]) -> None:
        aside = self.file.with_name(f".tmp-{secrets.token_hex(8)}")
        try:
            self._storage.put(self.file, HISTORY.dump_json(history[-KEPT:]), aside)
        except CheckpointError as error:
            self.tell("restart.history_not_written", file=str(self.file), reason=str(error))
