"""Where a run's curves are drawn: TensorBoard and Weights & Biases behind one interface. Rank 0 writes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from runtime.telemetry.config import Wandb, Worth
from runtime.telemetry.metrics import mfu
from runtime.telemetry.record import Step


class Board(Protocol):
    """Takes the figures of a step. Both may raise and take their time: they are called on a thread of their own."""

    def write(self, step: int, values: Mapping[str, float], at_ns: int) -> None: ...

    def close(self) -> None: ...


def figures(step: Step, worth: Worth) -> dict[str, float]:
    """What a board draws of a step, seconds and rates of rank 0."""
    values = {"time/step_s": step.seconds}
    values.update({f"time/{part}_s": spent / 1e9 for part, spent in step.parts.items()})
    for name, each in (("loss", step.loss), ("grad_norm", step.grad_norm), ("mfu", mfu(step, worth))):
        if each is not None:
            values[f"train/{name}"] = each
    if step.communication is not None:
        values["time/backward_communication_s"] = step.communication.seconds
        values["time/backward_communication_exposed_s"] = step.communication.exposed_s
    for name, count in (("samples", step.samples), ("tokens", step.tokens)):
        if count and step.seconds > 0:
            values[f"speed/{name}_per_second"] = count / step.seconds
    return values


class ToBoard:
    """Gives steps to a board. One that was done before, ahead of going back to a checkpoint, is given again; the first
    after going back says from which step, as a figure of its own."""

    def __init__(self, board: Board, worth: Worth) -> None:
        self._board, self._worth = board, worth
        self._last: int | None = None

    def take(self, batch: list[Step]) -> None:
        """Writes the steps."""
        for step in batch:
            values = figures(step, self._worth)
            if self._last is not None and step.number <= self._last:
                values["train/rolled_back_from"] = self._last
            self._last = step.number
            self._board.write(step.number, values, step.end_ns)

    def close(self) -> None:
        """Ends the board."""
        self._board.close()


class TensorBoard:
    """Event files for TensorBoard in a folder. They keep what was done twice; TensorBoard may draw the later alone."""

    def __init__(self, folder: Path, writer: Callable[..., Any]) -> None:
        self._writer = writer(str(folder))

    def write(self, step: int, values: Mapping[str, float], at_ns: int) -> None:
        """Adds one scalar a figure."""
        for name, each in values.items():
            self._writer.add_scalar(name, each, step, wall_time=at_ns / 1e9)
        self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases. What restarts goes on in the same run, by its id.

    Its own step only grows: what is written to an earlier one is dropped. So the training's step is a figure, and the
    axis of all others.
    """

    def __init__(self, config: Wandb, run: str, folder: Path | None, wandb: Any) -> None:
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            id=run,
            name=run,
            resume="allow",
            mode="offline" if config.offline else "online",
            dir=str(folder) if folder is not None else None,
            # Only what is handed over: no environment, no code, no console.
            settings=wandb.Settings(
                console="off", disable_git=True, disable_code=True, save_code=False, x_disable_meta=True
            ),
        )
        self._run.define_metric("*", step_metric="train/step")

    def write(self, step: int, values: Mapping[str, float], at_ns: int) -> None:
        """Logs the figures of a step."""
        self._run.log({**values, "train/step": step, "time/at_s": at_ns / 1e9})

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()
