"""The whole loop in one object: python examples/image/train.py [CONFIG] [--set NAME=VALUE …]"""

import sys
from functools import partial
from pathlib import Path

from runtime.stops.signals import watch

watch()

import torch  # noqa: E402
from model import RATE, Digits, Reader, right  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from runtime.config import told  # noqa: E402
from runtime.trainer import ResilientTrainer  # noqa: E402


def loss_of(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy of a batch of pictures and digits."""
    pictures, digits = batch
    return torch.nn.functional.cross_entropy(model(pictures), digits)


def main() -> None:
    """Trains, then reads pictures that it has not seen."""
    config = told(sys.argv[1:], default=Path(__file__).with_name("run.yaml"))
    loader = DataLoader(Digits(), batch_size=64, shuffle=True, num_workers=1)
    trainer = ResilientTrainer(config, Reader(), loss_of, loader, optimizer=partial(torch.optim.AdamW, lr=RATE))
    trainer.fit()

    if trainer.run.place.leads:
        read = right(trainer.model.eval())
        sys.stdout.write(f"done after {trainer.run.number} steps, {read:.0%} of new digits read right\n")


if __name__ == "__main__":
    main()
