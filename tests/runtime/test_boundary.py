"""What a boundary fixes: what a step draws, running statistics, and whether an update has begun."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from runtime.boundary import Boundary


def made(rank: int = 0) -> tuple[nn.Module, torch.optim.Optimizer, Boundary]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, Boundary(model, [optimizer], 7, rank)


@pytest.fixture(autouse=True)
def _own_random() -> None:
    torch.manual_seed(0)


def drawn() -> tuple[float, ...]:
    return random.random(), np.random.random(), torch.rand(()).item()  # noqa: S311


def test_a_step_draws_the_same_whatever_was_drawn_before_and_ranks_and_steps_differ() -> None:
    boundary, other = made()[2], made(rank=1)[2]
    boundary.at(5)
    first = drawn()
    drawn()
    boundary.at(5)
    assert drawn() == first
    boundary.at(6)
    assert drawn() != first
    other.at(5)
    assert drawn() != first


def test_a_forward_pass_leaves_the_state_whole_and_its_statistics_are_put_back() -> None:
    model, _, boundary = made()
    boundary.at(1)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    model(torch.rand(8, 3)).sum().backward()
    assert boundary.intact
    boundary.restore()
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_an_update_that_has_begun_is_noticed_and_a_closure_that_fails_before_it_is_none() -> None:
    model, optimizer, boundary = made()
    boundary.at(1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    assert boundary.intact
    for _ in range(2):
        model(torch.rand(8, 3)).sum().backward()
        optimizer.step()
        assert not boundary.intact
        boundary.at(2)
        assert boundary.intact
    next(iter(optimizer.state.values()))["exp_avg"].add_(1)  # a moment, and no weight yet
    assert not boundary.intact
