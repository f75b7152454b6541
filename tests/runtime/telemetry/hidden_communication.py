"""Two ranks, the second of which comes late to each backward pass: python hidden_communication.py CONFIG

The first waits for it in the sums of gradients, which DistributedDataParallel hides in the backward pass.
"""

import sys
import time

import torch
from prometheus_client import generate_latest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime.connect import connect
from runtime.run import Run

LATE_S = 0.2


def main() -> None:
    place = connect(seed=1, limit_s=60)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1))
    wrapped = DistributedDataParallel(model)
    run = Run(sys.argv[1], model=wrapped, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    with run:
        for _ in run.steps():
            loss = wrapped(torch.ones(4, 64)).mean()
            if place.rank == 1:
                time.sleep(LATE_S)
            loss.backward()
            run.step(loss=loss)
        assert run.telemetry.flush(30)
        sys.stdout.write(generate_latest(run.telemetry.metrics.registry).decode())


if __name__ == "__main__":
    main()
