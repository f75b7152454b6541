"""A training with all that one has: batch norm, dropout, momentum, a scheduler, a position in its data."""

from pathlib import Path

import torch

from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.state import Training, capture


class Heard(list):
    """A Tell that remembers."""

    def __call__(self, event: str, /, **fields) -> None:
        self.append((event, fields))

    def of(self, event: str) -> list[dict]:
        return [fields for each, fields in self if each == event]


class Position:
    def __init__(self) -> None:
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state) -> None:
        self.at = state["at"]


def training(seed: int, width: int = 8, **options) -> Training:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.3), torch.nn.Linear(width, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    return Training(model, optimizer, scheduler, data=Position())


def train(on: Training, steps: int) -> None:
    for _ in range(steps):
        loss = on.model(torch.randn(6, 4)).square().mean()
        on.optimizer.zero_grad()
        loss.backward()
        on.optimizer.step()
        on.scheduler.step(loss.item())
        on.data.at += 6


def everything(on: Training) -> list:
    """All that a step depends on, comparable."""
    found = capture(on, 0)
    tensors = {name: each.clone().tolist() for name, each in (found.tensors | found.own).items()}
    return [tensors, found.shared, found.mine]


def saved(checkpointer: Checkpointer, on: Training, step: int, **options) -> None:
    checkpointer.save(on, step, wait=True, **options)
    (outcome,) = checkpointer.poll()
    assert outcome.safe, outcome


def spoil(folder: Path, step: int) -> None:
    """Turns one bit of the data over."""
    (data,) = folder.glob(f"step-{step:012d}/*.data")
    raw = bytearray(data.read_bytes())
    raw[40] ^= 1
    data.write_bytes(raw)
