"""The image model in Accelerate: python examples/image/with_accelerate.py [CONFIG] [--set NAME=VALUE …]"""

import sys
from pathlib import Path

from runtime.stops.signals import watch

watch()

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import set_seed  # noqa: E402
from model import RATE, Digits, Reader, right  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from runtime.accelerate import AcceleratedRun  # noqa: E402
from runtime.config import told  # noqa: E402


def main() -> None:
    """Trains with gradients of two batches a step, then reads pictures that it has not seen."""
    config = told(sys.argv[1:], default=Path(__file__).with_name("run.yaml"))
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    set_seed(config.seed)
    reader = Reader()
    model, optimizer = accelerator.prepare(reader, torch.optim.AdamW(reader.parameters(), lr=RATE))
    loader = DataLoader(Digits(), batch_size=32, shuffle=True, num_workers=1)

    run = AcceleratedRun(accelerator, config, model=model, optimizer=optimizer, data=loader)
    with run:
        for pictures, digits in run.batches():
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(pictures), digits)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            run.step(loss=loss)

    if run.place.leads:
        read = right(reader.eval())
        sys.stdout.write(f"done after {run.number} steps, {read:.0%} of new digits read right\n")


if __name__ == "__main__":
    main()
