"""Reinforcement learning: simulators, a queue of experience, a trainer, and the policy's way back to the simulators.

python examples/reinforcement/train.py [CONFIG] [--set NAME=VALUE …]

Each step is one round: the policy is published, every simulator plays an episode with it, the trainer learns from all.
An episode depends on seed, round and simulator alone, so a run that resumes goes on as if it had never stopped.
"""

import sys
from pathlib import Path

from runtime.stops.signals import watch

watch()

import torch  # noqa: E402
from cart import LONGEST, Episode, Simulators, Weights  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from runtime.config import told  # noqa: E402
from runtime.connect import connect  # noqa: E402
from runtime.run import Run  # noqa: E402

SIMULATORS = 8
"""Over all ranks."""
DISCOUNT = 0.98


def policy_of(model: nn.Module) -> Weights:
    """What a simulator needs: the weights on the host, copied."""
    return {name: each.detach().cpu().numpy().copy() for name, each in model.state_dict().items()}


def returns(steps: int) -> Tensor:
    """What each step of an episode was worth from then on, less what is usual: shape (steps,)."""
    left = torch.arange(steps, 0, -1, dtype=torch.float32)
    worth = (1 - DISCOUNT**left) / (1 - DISCOUNT)
    usual = (1 - DISCOUNT ** (LONGEST / 4)) / (1 - DISCOUNT)
    return (worth - usual) / usual


def loss_of(model: nn.Module, episodes: list[Episode]) -> Tensor:
    """The policy gradient's loss (Williams 1992), a mean over all steps."""
    seen = torch.cat([torch.from_numpy(each.seen) for each in episodes])
    pushed = torch.cat([torch.from_numpy(each.pushed) for each in episodes])
    worth = torch.cat([returns(len(each.pushed)) for each in episodes])
    chosen = model(seen).log_softmax(1).gather(1, pushed[:, None])[:, 0]
    return -(chosen * worth).mean()


def main() -> None:
    """Trains until the rounds of the configuration are done."""
    config = told(sys.argv[1:], default=Path(__file__).with_name("run.yaml"))
    place = connect(seed=config.seed)
    simulators = Simulators(range(place.rank, SIMULATORS, place.world), config.seed)

    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped = DistributedDataParallel(model) if place.world > 1 else model

    run, lasted = Run(config, model=wrapped, optimizer=optimizer), 0.0
    with run:
        for version in run.steps():
            simulators.publish(policy_of(model), version)
            with run.phase("data"):
                episodes = simulators.collect(version)
            loss = loss_of(wrapped, episodes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps = sum(len(each.pushed) for each in episodes)
            lasted = steps / len(episodes)
            run.step(loss=loss, samples=steps, metric=lasted)

    simulators.close()
    if place.leads and lasted:
        sys.stdout.write(f"done after {run.number} rounds, the pole stands for {lasted:.0f} steps\n")


if __name__ == "__main__":
    main()
