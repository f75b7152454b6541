"""Ranks of which one may come late to each step: python slow_rank.py CONFIG RANK PHASE by_hand|wrapped

RANK spends LATE_S longer than the others in PHASE; at -1 all ranks do, at -2 another in each step. Gradients are summed
by hand in the phase `communication`, or in a backward pass by DistributedDataParallel. Each rank says how long it was
late in a step.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime.connect import connect
from runtime.run import Run

LATE_S = 0.03


def main(config: str, late: int, where: str, wrap: bool) -> None:
    place = connect(seed=1, limit_s=60)
    model = nn.Linear(16, 1)
    used: nn.Module = DistributedDataParallel(model) if wrap else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = Run(config, model=used, optimizer=optimizer)
    slept = []
    with run:
        for number in run.steps():
            slow = late == -1 or place.rank == (number % place.world if late == -2 else late)
            for name in ("data", "forward"):
                with run.phase(name):
                    if name == where and slow:
                        began = time.perf_counter()
                        time.sleep(LATE_S)
                        slept.append(time.perf_counter() - began)
                    if name == "forward":
                        loss = used(torch.ones(4, 16)).mean()
            with run.phase("backward"):
                loss.backward()
            if not wrap:
                with run.phase("communication"):
                    for each in model.parameters():
                        dist.all_reduce(each.grad)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss=loss)
    sys.stdout.write(f"slept {sum(slept) / max(1, len(slept))}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "wrapped")
