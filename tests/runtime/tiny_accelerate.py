"""The training of tiny.py in Accelerate, with gradients of two batches a step: python tiny_accelerate.py CONFIG …

A test can hold it in `forward` (gate).
"""

import sys

import gate
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from tiny import Points, digest
from torch import nn
from torch.utils.data import DataLoader

from runtime.accelerate import AcceleratedRun
from runtime.config import told


def main() -> None:
    config = told(sys.argv[1:], default={})
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(config.seed)
    layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler = accelerator.prepare(layers, optimizer, scheduler)
    loader = DataLoader(Points(), batch_size=4, shuffle=True)
    run = AcceleratedRun(accelerator, config, model=model, optimizer=optimizer, scheduler=scheduler, data=loader)
    with run:
        for x, y in run.batches():
            gate.step = run.number + 1
            with accelerator.accumulate(model):
                gate.hold("forward")
                loss = (model(x) - y).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            run.step(loss=loss)
    sys.stdout.write(f"end steps={run.number} weights={digest(layers.parameters())}\n")


if __name__ == "__main__":
    main()
