"""A small training that is killed and goes on: run by torchrun, or by its agent with workers forked from this process.

    killed_training.py FOLDER STEPS [--forked | --resized]

Each rank notes its process number at its start, what it resumed from, and what it ended with, in FOLDER/notes. The
forked workers have torch imported already: a restart takes a fraction of a second, where torchrun's takes ten.
"""

import hashlib
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.state import Training
from runtime.control import Control
from runtime.place import place

SAVE_EVERY, SAMPLES, BATCH = 3, 96, 16


class Order:
    """The global order of samples: by seed, epoch and consumed samples alone, the same at any world size."""

    def __init__(self) -> None:
        self.consumed = 0

    def take(self, rank: int, world: int) -> list[int]:
        """This rank's samples of the next batch."""
        epoch, at = divmod(self.consumed, SAMPLES)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).tolist()
        self.consumed += BATCH
        return order[at : at + BATCH][rank::world]

    def state_dict(self) -> dict[str, int]:
        return {"consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.consumed = state["consumed"]


class Net(torch.nn.Module):
    """Dropout draws from each rank's own random state; the norm's buffers differ between ranks."""

    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(inputs)
        return out


def full(tensor: torch.Tensor) -> bytes:
    """All of it, from all ranks if it is sharded."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().numpy().tobytes()


def digest(training: Training) -> str:
    """Of what is the same on all ranks: parameters, the optimizer's state, the rate, the position."""
    told = hashlib.sha256()
    for each in training.model.parameters():
        told.update(full(each))
    (optimizer,) = training.optimizers
    for group in optimizer.param_groups:
        told.update(repr(group["lr"]).encode())
        for each in group["params"]:
            for key, value in sorted(optimizer.state[each].items()):
                told.update(key.encode() + full(value))
    assert training.data is not None
    told.update(json.dumps(training.data.state_dict()).encode())
    return told.hexdigest()


def in_rank_order(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of the gradients, summed in the ranks' order.

    Gloo's own sum takes the ranks in an order that depends on an element's place in its bucket, and
    DistributedDataParallel forms its buckets anew after the first step of each start: the last bits would differ.
    """
    own = bucket.buffer()
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    gathered = dist.all_gather(found, own, async_op=True).get_future()

    def mean(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        done.value()  # raises where a peer was lost
        return torch.stack(found).sum(0) / len(found)

    return gathered.then(mean)


def note(folder: Path, name: str, **fields: Any) -> None:
    """A line in one write, so that a kill leaves it whole or away."""
    fd = os.open(folder / "notes" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, json.dumps(fields).encode() + b"\n")
    os.close(fd)


def wrapped(sharded: bool) -> torch.nn.Module:
    """The net, its parameters replicated, or sharded over all ranks."""
    if sharded:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import init_device_mesh

        net = Net()
        fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        return net
    model = DistributedDataParallel(Net())
    model.register_comm_hook(None, in_rank_order)
    return model


def main(root: str, steps: int, until: int | None = None, sharded: bool = False) -> None:
    """Trains to the end of `steps`, or to a last checkpoint after step `until`."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)  # a forked worker has the agent's handlers, which wait for Python to run
    folder, here = Path(root), place()
    note(folder, f"started.{os.environ['TORCHELASTIC_RESTART_COUNT']}", rank=here.rank, pid=os.getpid())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    control = Control(here)
    control.barrier()
    note(folder, f"joined.{os.environ['TORCHELASTIC_RESTART_COUNT']}", rank=here.rank)
    torch.manual_seed(1)
    model = wrapped(sharded)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    torch.manual_seed(100 + here.rank)
    order = Order()
    training = Training(model, optimizer, scheduler, data=order)
    inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(7))
    targets = inputs[:, :4].cumsum(1)

    def tell(event: str, /, **fields: Any) -> None:
        if event == "checkpoint.committed" and here.leads:
            note(folder, "committed", step=fields["step"], attempt=here.attempt)
        if event in ("checkpoint.failed", "checkpoint.refused", "checkpoint.quarantined", "checkpoint.untidy"):
            note(folder, "wrong", event=event, rank=here.rank, **fields)

    config = CheckpointConfig(folder=folder / "checkpoints", save_limit_s=60, read_back=False)
    with Checkpointer(config, here, control, tell) as checkpointer:
        resumed = checkpointer.restore(training)
        step = resumed.step if resumed else 0
        if resumed:
            note(
                folder,
                "resumed",
                step=step,
                rank=here.rank,
                attempt=here.attempt,
                world=resumed.world,
                rng=resumed.rng,
                digest=digest(training),
            )
        while step < (until or steps):
            chosen = order.take(here.rank, here.world)
            optimizer.zero_grad()
            loss = (model(inputs[chosen]) - targets[chosen]).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            note(folder, f"steps.{here.rank}", step=step, digest=digest(training), samples=chosen)
            if step % SAVE_EVERY == 0 and step < steps:
                checkpointer.save(training, step)
        if until:
            checkpointer.save(training, step, wait=True)
        checkpointer.finish(60)
        buffers = {name: each.tolist() for name, each in model.named_buffers()} if here.leads else {}
        drawn = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
        note(folder, "ended", rank=here.rank, digest=digest(training), buffers=buffers, rng=drawn, loss=loss.item())
        control.barrier()
    dist.destroy_process_group()
    note(folder, "left", pid=os.getpid())


def launched(run: Path, workers: int, *arguments: int | bool | None) -> None:
    """As torchrun runs `main`, by the same agent, but with workers forked from this process."""
    import_module("torch._dynamo")  # the optimizer imports it at its first step: here once for all workers
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    (run / "notes").mkdir(parents=True, exist_ok=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=f"{os.getpid()}-{time.monotonic_ns()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=10_000 if len(arguments) == 1 else 0,
        monitor_interval=0.05,
        start_method="fork",
    )
    elastic_launch(config, main)(str(run), *arguments)


def again_and_again(root: Path, steps: int) -> None:
    """One run after another, the first undisturbed, until somebody says that it was enough."""
    for run in range(10_000):
        launched(root / f"run-{run}", 4, steps)
        if (root / "enough").exists():
            return


def resized(root: Path, steps: int) -> None:
    """Plain and sharded: an undisturbed run of 4 ranks, and one whose 4 ranks become 2 and then 4 again."""
    import_module("torch.distributed.fsdp")
    for name, sharded in (("plain", False), ("sharded", True)):
        launched(root / f"{name}-4", 4, steps, None, sharded)
        for workers, until in ((4, steps // 3), (2, 2 * steps // 3), (4, None)):
            launched(root / f"{name}-4-2-4", workers, steps, until, sharded)


if __name__ == "__main__":
    if "--forked" in sys.argv:
        again_and_again(Path(sys.argv[1]), int(sys.argv[2]))
    elif "--resized" in sys.argv:
        resized(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(sys.argv[1], int(sys.argv[2]))
