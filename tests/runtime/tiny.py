"""A training small enough for tests: python tiny.py CONFIG [--set NAME=VALUE …]

TINY_FAULT=WHERE:STEP[:RANK] makes it fail there: `loss` before the update, `update` after it, `nan` with a loss that is
none on that rank, `bit` with a weight that differs from then on. TINY_PAUSE_S waits in each step. Ends with a line of
what it came to: steps, samples, and a digest of the weights.
"""

import hashlib
import os
import sys
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime.config import told
from runtime.connect import connect
from runtime.data import Batches
from runtime.run import Run

FAULT, AT, BY = (*os.environ.get("TINY_FAULT", "none:-1").split(":"), "0")[:3]


class Points:
    """Noisy points on a plane; the noise is drawn anew each time."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / 40, index % 7 / 7, 1.0, 0.0]) + 0.1 * torch.randn(4)
        return x, x.sum(0, keepdim=True)


def main() -> None:
    config = told(sys.argv[1:], default={})
    place = connect(seed=config.seed, limit_s=30)

    def fault(where: str) -> bool:
        return where == FAULT and run.number == int(AT) and place.rank == int(BY)

    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    wrapped = DistributedDataParallel(model) if place.world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    data = Batches(
        Points(),
        int(os.environ.get("TINY_BATCH", "8")),
        seed=config.seed,
        place=place,
        workers=int(os.environ.get("TINY_WORKERS", "0")),
    )
    run = Run(config, model=wrapped, optimizer=optimizer, scheduler=scheduler, data=data)
    with run:
        for x, y in run.batches():
            loss = (wrapped(x) - y).square().mean()
            if fault("loss"):
                raise ValueError("a fault of the program")
            if fault("nan"):
                loss = loss * float("nan")
            optimizer.zero_grad()
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
            time.sleep(float(os.environ.get("TINY_PAUSE_S", "0")))
    weights = torch.cat([each.detach().flatten() for each in model.parameters()]).numpy().tobytes()
    digest = hashlib.sha256(weights).hexdigest()[:16]
    sys.stdout.write(f"end steps={run.number} samples={data.consumed} weights={digest}\n")


if __name__ == "__main__":
    main()
