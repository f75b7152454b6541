"""The image model in Lightning: python examples/image/with_lightning.py [CONFIG] [--set NAME=VALUE …]"""

import os
import sys
from pathlib import Path

from runtime.stops.signals import watch

watch()

import torch  # noqa: E402
from lightning.pytorch import LightningModule, Trainer, seed_everything  # noqa: E402
from model import RATE, Digits, Reader, right  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from runtime.config import told  # noqa: E402
from runtime.lightning import Resilient  # noqa: E402


class Digitizer(LightningModule):
    """Reads digits."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = Reader()

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """Mean cross-entropy of a batch."""
        pictures, digits = batch
        return torch.nn.functional.cross_entropy(self.reader(pictures), digits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over all parameters."""
        return torch.optim.AdamW(self.parameters(), lr=RATE)


def main() -> None:
    """Trains, then reads pictures that it has not seen."""
    config = told(sys.argv[1:], default=Path(__file__).with_name("run.yaml"))
    seed_everything(config.seed)
    resilient = Resilient(config)
    trainer = Trainer(
        callbacks=[resilient],
        max_epochs=-1,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    model = Digitizer()
    loader = DataLoader(Digits(), batch_size=64, shuffle=True, num_workers=1)
    trainer.fit(model, train_dataloaders=resilient.data(loader))
    if trainer.is_global_zero:
        read = right(model.reader.eval())
        sys.stdout.write(f"done after {trainer.global_step} steps, {read:.0%} of new digits read right\n")


if __name__ == "__main__":
    main()
