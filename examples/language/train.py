"""A plain training loop with the runtime: python examples/language/train.py [CONFIG] [--set NAME=VALUE …]

Alone, or on more ranks: torchrun --nproc-per-node 2 examples/language/train.py
"""

import sys
from pathlib import Path

from runtime.stops.signals import watch

watch()  # before torch, which takes seconds: a signal that comes meanwhile is kept

import torch  # noqa: E402
from model import TEXT, Language, Windows, loss_of  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from runtime.config import told  # noqa: E402
from runtime.connect import connect  # noqa: E402
from runtime.data import Batches  # noqa: E402
from runtime.run import Run  # noqa: E402

LENGTH = 64
"""Bytes that the model sees at once."""


def main() -> None:
    """Trains until the steps of the configuration are done."""
    config = told(sys.argv[1:], default=Path(__file__).with_name("run.yaml"))
    place = connect(seed=config.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    model = Language(LENGTH).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=config.steps)
    data = Batches(Windows(TEXT.read_bytes(), LENGTH), batch=32, seed=config.seed, place=place)
    wrapped = DistributedDataParallel(model) if place.world > 1 else model

    run = Run(config, model=wrapped, optimizer=optimizer, scheduler=scheduler, data=data)
    loss = torch.tensor(0.0)
    with run:
        for seen, target in run.batches():
            with run.phase("forward"):
                loss = loss_of(wrapped(seen.to(device)), target.to(device))
            with run.phase("backward"):
                optimizer.zero_grad()
                loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with run.phase("optimizer"):
                optimizer.step()
                scheduler.step()
            run.step(loss=loss, grad_norm=norm, tokens=seen.numel())

    if place.leads and loss:
        sys.stdout.write(f"done after {run.number} steps, loss {loss.item():.2f} nats a byte\n")


if __name__ == "__main__":
    main()
