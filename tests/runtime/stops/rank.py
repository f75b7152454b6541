"""A rank of a small training job whose state is one number, for the tests: what a user's loop does, with held phases.

Deterministic: after step s the weight is the same bit for bit, whatever stopped and resumed it in between.
"""

import json
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from runtime.control import Control
from runtime.exits import Exit
from runtime.place import Place
from runtime.stops.leave import leave
from runtime.stops.signals import shield, watch
from runtime.stops.stop import StopConfig, Stopper

STEPS, SAVE_EVERY, HELD_STEP = 8, 2, 4


@dataclass
class Job:
    """One run of the job. `hold`: the phase in which each rank of `held` waits until its pipe says go.

    `workers`: how data-loader workers are started, if there are some.
    """

    folder: Path
    world: int = 2
    hold: str = ""
    held: tuple[int, ...] = ()
    workers: str = ""
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class Gate:
    """Tells the controller that a phase has begun, and keeps the rank in it until the controller answers."""

    job: Job
    rank: int
    told: int
    answer: int

    def here(self, phase: str, step: int, busy: Callable[[], object] | None = None) -> None:
        """Blocks in a system call, or computes if there is something to compute."""
        if phase != self.job.hold or self.rank not in self.job.held or step not in (HELD_STEP, 0):
            return
        os.write(self.told, phase.encode())
        if phase == "collective":
            return  # held by the peer that does not come
        while busy is not None and not select.select([self.answer], [], [], 0)[0]:
            busy()
        os.read(self.answer, 1)


class Held(torch.autograd.Function):
    """The identity, whose backward passes the gate."""

    gate: Gate
    step = 0

    @staticmethod
    def forward(_context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        Held.gate.here("backward", Held.step, lambda: torch.ones(64, 64) @ torch.ones(64, 64))
        return gradient


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> tuple[float, int]:
        return float(index + 1), os.getpid()


def batches(job: Job, first: int) -> Iterator[tuple[torch.Tensor, Any]]:
    """The data after `first` steps, from workers if the job has some."""
    loader = torch.utils.data.DataLoader(
        torch.utils.data.Subset(Numbers(), range(first, STEPS)),
        batch_size=1,
        num_workers={"": 0, "fork": 2, "spawn": 1}[job.workers],
        multiprocessing_context=job.workers or None,
    )
    with shield():
        return iter(loader)


def save(job: Job, gate: Gate, step: int, weight: torch.Tensor) -> None:
    """As a checkpoint is committed: written aside, made durable, renamed."""
    if gate.rank == 0:
        path = job.folder / "aside"
        with path.open("w") as file:
            json.dump({"step": step, "weight": weight.item().hex()}, file)
            file.flush()
            os.fsync(file.fileno())
    gate.here("save", step)
    if gate.rank == 0:
        path.rename(job.folder / "state.json")


def load(job: Job) -> tuple[int, torch.Tensor]:
    """The saved step and weight, or those of the beginning."""
    try:
        state = json.loads((job.folder / "state.json").read_text())
    except FileNotFoundError:
        return 0, torch.tensor(1.0, dtype=torch.float64)
    return state["step"], torch.tensor(float.fromhex(state["weight"]), dtype=torch.float64)


def train(job: Job, rank: int, told: int, answer: int, store: str) -> None:
    """The loop. Ends the process."""
    signals = watch()
    gate = Gate(job, rank, told, answer)
    torch.set_num_threads(1)
    gate.here("start", 0)
    limit_s = 20.0
    dist.init_process_group(
        "gloo", f"file://{job.folder / store}", timedelta(seconds=limit_s), world_size=job.world, rank=rank
    )

    def tell(event: str, /, **fields: Any) -> None:
        with (job.folder / f"events.{rank}").open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")

    place = Place(rank=rank, world=job.world, local_rank=rank, local_world=job.world)
    stopper = Stopper(StopConfig(**job.config), place, Control(place, limit_s), tell, signals)
    first, weight = load(job)
    Held.gate = gate
    exit = Exit.DONE
    data = batches(job, first)
    for step in range(first + 1, STEPS + 1):
        Held.step = step
        gate.here("data", step)
        value, worker = next(data)
        tell("fed", step=step, worker=int(worker))
        if step == HELD_STEP:
            gate.here("workers", step)
        weight.requires_grad_(True)
        gate.here("forward", step, lambda: torch.ones(64, 64) @ torch.ones(64, 64))
        loss = (Held.apply(weight) * (value[0] + rank) - 1.0) ** 2 / 1000
        loss.backward()
        gate.here("collective", step)
        if job.hold == "collective" and step == HELD_STEP and rank == job.world - 1:
            os.write(told, b"last")
            os.read(answer, 1)
        gradient = weight.grad
        assert gradient is not None
        dist.all_reduce(gradient)
        weight = (weight - gradient).detach()
        tell("stepped", step=step, weight=weight.item().hex())
        stop = stopper.at_boundary(step)
        if stop.save if stop is not None else step % SAVE_EVERY == 0:
            save(job, gate, step, weight)
        if stop is not None:
            exit = Exit.RESUMABLE_STOP
            break
    if exit is Exit.DONE:
        save(job, gate, STEPS, weight)
    gate.here("finish", 0)
    leave(stopper.finish(exit))
