"""A training small enough for tests: python tiny.py CONFIG [--set NAME=VALUE …]

TINY_FAULT=WHERE:STEP[:RANK] makes it fail there: `loss` before the update, `update` after it, `nan` with a loss that is
none on that rank, `bit` with a weight that differs from then on. TINY_PAUSE_S waits in each step. TINY_WORKERS prepare
the data, started as TINY_START says. A test can hold it (gate) at the start, in `data`, `forward`, `backward`,
`collective`, and in `copy` and `write` of a save. Ends with a line of what it came to: steps, samples, and a digest of
the weights.
"""

import hashlib
import os
import sys
import time

import gate
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime.config import told
from runtime.connect import connect
from runtime.data import Batches
from runtime.run import Run
from runtime.stops.signals import watch

FAULT, AT, BY = (*os.environ.get("TINY_FAULT", "none:-1").split(":"), "0")[:3]


class Points:
    """Noisy points on a plane; the noise is drawn anew each time."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        gate.hold("data")
        x = torch.tensor([index / 40, index % 7 / 7, 1.0, 0.0]) + 0.1 * torch.randn(4)
        return x, x.sum(0, keepdim=True)


def digest(model: nn.Module) -> str:
    """Of the weights, bit for bit."""
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]


def main() -> None:
    watch()
    gate.hold("start")
    gate.hold_writes()
    config = told(sys.argv[1:], default={})
    place = connect(seed=config.seed, limit_s=30)

    def fault(where: str) -> bool:
        return where == FAULT and run.number == int(AT) and place.rank == int(BY)

    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    model[1].register_forward_pre_hook(lambda *_: gate.hold("forward", computing=True))
    model.register_state_dict_pre_hook(lambda *_: gate.hold("copy"))
    wrapped = DistributedDataParallel(model) if place.world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    data = Batches(
        Points(),
        int(os.environ.get("TINY_BATCH", "8")),
        seed=config.seed,
        place=place,
        workers=int(os.environ.get("TINY_WORKERS", "0")),
        multiprocessing_context=os.environ.get("TINY_START"),
    )
    run = Run(config, model=wrapped, optimizer=optimizer, scheduler=scheduler, data=data)
    with run:
        gate.step = run.number + 1
        for x, y in run.batches():
            loss = (wrapped(x) - y).square().mean()
            if fault("loss"):
                raise ValueError("a fault of the program")
            if fault("nan"):
                loss = loss * float("nan")
            loss.register_hook(lambda _: gate.hold("backward", computing=True))
            optimizer.zero_grad()
            gate.hold("collective", only=place.world - 1)
            loss.backward()
            if run.accepts(loss):
                optimizer.step()
            if fault("update"):
                raise ConnectionError("a peer is gone")
            if fault("bit"):
                with torch.no_grad():
                    next(model.parameters()).view(-1)[0].add_(1e-3)
            scheduler.step()
            run.step(loss=loss)
            gate.step = run.number + 1
            time.sleep(float(os.environ.get("TINY_PAUSE_S", "0")))
    sys.stdout.write(f"end steps={run.number} samples={data.consumed} weights={digest(model)}\n")


if __name__ == "__main__":
    main()
