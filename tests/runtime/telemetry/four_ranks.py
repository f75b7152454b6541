"""A training run of several ranks, started by torchrun: a linear model, gradients averaged by hand, telemetry on.

python -m torch.distributed.run … four_ranks.py CONFIG.json STEPS GO   ends when the file GO appears
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.place import place
from runtime.telemetry import Telemetry, TelemetryConfig


def main(config: TelemetryConfig, steps: int, go: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    here = place()
    telemetry = Telemetry(config, here)
    telemetry("run.started", world=here.world, api_key="sk-not-for-anyone-0123456789")
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        with telemetry.phase("data"):
            batch = torch.randn(8, 16)
        with telemetry.phase("forward"):
            loss = model(batch).square().mean()
        with telemetry.phase("backward"):
            loss.backward()
            with telemetry.phase("communication"):
                for each in model.parameters():
                    dist.all_reduce(each.grad)
                    each.grad /= here.world
        with telemetry.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        telemetry.step_done(step, samples=8, tokens=128, loss=loss)
    telemetry("run.trained", steps=steps)
    delivered = telemetry.flush(30)
    (go.parent / f"trained-{here.rank}-{delivered}").touch()
    while not go.exists():
        time.sleep(0.05)
    telemetry.close(10)
    (go.parent / f"dropped-{here.rank}-{sum(telemetry.dropped.values())}").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(TelemetryConfig.model_validate_json(Path(sys.argv[1]).read_text()), int(sys.argv[2]), Path(sys.argv[3]))
