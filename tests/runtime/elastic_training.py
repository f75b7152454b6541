"""A training whose number of ranks may change: python elastic_training.py CONFIG [--set NAME=VALUE …]

Steps take a moment each, until a file `quick` is in its folder. Each rank notes in fed/ what it fed to the model in
each step, with the learning rate that the step was taken at, and ends with a line of what it came to.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from runtime.stops.signals import watch

watch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from runtime.config import told  # noqa: E402
from runtime.connect import connect  # noqa: E402
from runtime.run import Run  # noqa: E402

QUICK, FED = Path("quick"), Path("fed")


class Numbers:
    """Each sample says which it is."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / 48, index % 7 / 7, index % 5 / 5, 1.0])
        return index, x, x.cumsum(0)[1:2].sin()


def in_pairs(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of the gradients, added up as a tree over the ranks in their order.

    Four ranks with a micro-batch each then round as two ranks do that have added up two each: (a + b) + (c + d). Gloo's
    own sum takes the ranks in an order that depends on an element's place in its bucket.
    """
    own = bucket.buffer()
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    gathered = dist.all_gather(found, own, async_op=True).get_future()

    def mean(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        done.value()  # raises where a peer was lost
        left = found
        while len(left) > 1:
            pairs = [first + second for first, second in zip(left[::2], left[1::2], strict=False)]
            left = pairs + left[len(pairs) * 2 :]
        return left[0] / len(found)

    return gathered.then(mean)


def main() -> None:
    """Trains until the steps of the configuration are done."""
    config = told(sys.argv[1:], default={})
    torch.set_num_threads(1)
    place = connect(seed=config.seed, limit_s=60)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    wrapped: nn.Module = model
    if place.world > 1:
        wrapped = parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(None, in_pairs)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    rates: list[float] = []
    assert config.batch
    loader = DataLoader(Numbers(), batch_size=config.batch.micro, shuffle=True)
    run = Run(config, model=wrapped, optimizer=optimizer, scheduler=scheduler, data=loader)
    FED.mkdir(exist_ok=True)
    total: Any = 0.0
    fed: list[list[int]] = []
    with run, (FED / f"{os.getpid()}").open("a", buffering=1) as notes:
        optimizer.register_step_pre_hook(lambda each, *_: rates.append(each.param_groups[0]["lr"]))
        for index, x, y in run.batches():
            fed.append(index.tolist())
            loss = (wrapped(x) - y).square().mean() / run.share.accumulate
            loss.backward()
            total += loss.detach()
            if run.gathering:
                continue
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            run.step(loss=total)
            line = {"step": run.number, "rank": place.rank, "world": place.world, "fed": fed, "rate": rates.pop()}
            notes.write(json.dumps(line) + "\n")
            total, fed = 0.0, []
            if not QUICK.exists():
                time.sleep(0.4)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    lr = optimizer.param_groups[0]["lr"]
    sys.stdout.write(f"end steps={run.number} lr={lr!r} weights={digest} sum={weights.double().sum().item()!r}\n")


if __name__ == "__main__":
    main()
