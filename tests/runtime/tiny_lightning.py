"""The training of tiny.py in Lightning: python tiny_lightning.py CONFIG …

TINY_ACCUMULATE batches of TINY_MICRO samples a step. A test can hold it in `forward` (gate).
"""

import os
import sys
from typing import Any

import gate
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from tiny import AT, FAULT, Points
from torch import nn
from torch.utils.data import DataLoader

from runtime.config import told
from runtime.lightning import Resilient


class Tiny(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        if FAULT == "loss" and self.global_step == int(AT):
            raise ValueError("a fault of the program")
        gate.step = self.global_step + 1
        gate.hold("forward")
        return (self.layers(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def main() -> None:
    config = told(sys.argv[1:], default={})
    seed_everything(config.seed)
    resilient = Resilient(config)
    trainer = Trainer(
        callbacks=[resilient], max_epochs=-1, accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        accumulate_grad_batches=int(os.environ.get("TINY_ACCUMULATE", "2")), enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, logger=False,
    )  # fmt: skip
    model = Tiny()
    loader = DataLoader(Points(), batch_size=int(os.environ.get("TINY_MICRO", "4")), shuffle=True)
    trainer.fit(model, train_dataloaders=resilient.data(loader))
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    total = weights.double().sum().item()
    sys.stdout.write(f"end steps={trainer.global_step} epoch={trainer.current_epoch} rate={rate:.3g} sum={total!r}\n")


if __name__ == "__main__":
    main()
