"""The learning rate's factor reaches each step, and nothing else: no scheduler, no checkpoint, no later world."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import Adam, Optimizer, lr_scheduler

from runtime.config import ConfigError
from runtime.rate import Rate

STEPS = 24
Made = Callable[[Optimizer], Any]


def lambda_(step: int) -> float:
    return 1 / (1 + step)


SCHEDULERS: dict[str, Made] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda_),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9 + 0.001 * step),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [4, 9, 17]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.3, 7),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=9),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, STEPS, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 1e-4),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2, 1e-4),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, STEPS + 1),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2, min_lr=1e-3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=6), lr_scheduler.ExponentialLR(o, 0.9)], [6]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.3, 7), lr_scheduler.ExponentialLR(o, 0.9)], o
    ),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=8),
}


def test_every_scheduler_of_torch_is_among_them() -> None:
    kinds = {each for each in lr_scheduler.__all__ if each not in ("LRScheduler",)}
    assert kinds <= set(SCHEDULERS)


class Training:
    """Two groups of parameters, a scheduler, and what each step was really taken at."""

    def __init__(self, make: Made, factor: float) -> None:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        self.optimizer = Adam(
            [{"params": model[0].parameters(), "lr": 0.05}, {"params": model[1].parameters(), "lr": 0.02}]
        )
        self.model, self.scheduler = model, make(self.optimizer)
        self.rate = Rate([self.optimizer], factor)
        self.used: list[list[float]] = []
        self.seen: list[list[float]] = []
        self.optimizer.register_step_pre_hook(lambda *_: self.used.append(self.rates()))

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def steps(self, count: int) -> "Training":
        for _ in range(count):
            self.optimizer.zero_grad()
            self.model(torch.ones(2, 3)).square().mean().backward()
            self.seen.append(self.rates())
            self.optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                    self.scheduler.step(1.0)
                else:
                    self.scheduler.step()
        return self

    def state(self) -> dict[str, Any]:
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        return copy.deepcopy({"groups": groups, "scheduler": self.scheduler.state_dict()})

    def go_on(self, state: dict[str, Any]) -> "Training":
        """As a restore does it: the groups' values are put into place, then the scheduler's."""
        state = copy.deepcopy(state)
        for group, kept in zip(self.optimizer.param_groups, state["groups"], strict=True):
            group.update(kept)
        self.scheduler.load_state_dict(state["scheduler"])
        return self


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rate_of_each_step_is_the_schedulers_times_that_worlds_factor(name: str) -> None:
    """Worlds whose factors are 1, then 0.75, then 1.5, then 1, each resumed from the one before."""
    make = SCHEDULERS[name]
    whole = Training(make, 1).steps(STEPS)
    state: dict[str, Any] | None = None
    seen, used = [], []
    factors = (1.0, 0.75, 1.5, 1.0)
    for factor in factors:
        part = Training(make, factor)
        if state is not None:
            part.go_on(state)
        part.steps(STEPS // len(factors))
        state = part.state()
        seen += part.seen
        used += [[rate / factor for rate in each] for each in part.used]
    assert seen == whole.seen == whole.used  # exactly: no factor was put on and taken off by arithmetic
    assert used == [pytest.approx(each, rel=1e-12) for each in seen]
    assert state is not None
    # But for what a scheduler keeps of functions and of other objects.
    assert state["groups"] == whole.state()["groups"]
    assert str(state["scheduler"]) == str(whole.state()["scheduler"]) or name in ("SequentialLR", "ChainedScheduler")


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    rate = torch.tensor(0.5)
    optimizer = Adam([weight], lr=rate, capturable=False, foreach=False)
    assert optimizer.param_groups[0]["lr"] is rate
    used = []
    with_factor = Rate([optimizer], 0.5)
    optimizer.register_step_pre_hook(lambda each, *_: used.append(each.param_groups[0]["lr"].item()))
    for _ in range(3):
        weight.grad = torch.ones(1)
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate.item() == 0.5
    assert used == [0.25] * 3
    assert with_factor.effective([optimizer]) == [0.25]


def sgd(kind: type[torch.optim.SGD] = torch.optim.SGD) -> tuple[torch.nn.Parameter, torch.optim.SGD]:
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    return weight, kind([weight], lr=1.0)


def test_a_step_that_failed_leaves_no_factor_behind() -> None:
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().step(closure)

    weight, optimizer = sgd(Failing)
    rate = Rate([optimizer], 0.5)
    with pytest.raises(torch.OutOfMemoryError):
        optimizer.step()
    rate.restore()
    assert optimizer.param_groups[0]["lr"] == 1.0
    with pytest.raises(torch.OutOfMemoryError):
        optimizer.step()
    optimizer.fails = False  # type: ignore[attr-defined]
    optimizer.step()  # a loop that catches it and tries again
    assert weight.item() == -0.5
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_step_that_calls_the_one_it_replaces_is_scaled_once() -> None:
    """torch puts hooks around both."""
    sgd()

    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    weight, optimizer = sgd(Outer)
    Rate([optimizer], 0.5)
    optimizer.step()
    assert weight.item() == -0.5
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_scaler_that_leaves_a_step_out_and_one_that_takes_it() -> None:
    weight, optimizer = sgd()
    Rate([optimizer], 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for grad, expected in ((float("inf"), 0.0), (scaler.get_scale() / 2, -0.5)):
        weight.grad = torch.full((1,), grad)
        scaler.scale(torch.zeros(1))
        scaler.step(optimizer)
        scaler.update()
        assert weight.item() == expected
        assert optimizer.param_groups[0]["lr"] == 1.0


def test_groups_that_come_later_follow_and_an_end_leaves_the_optimizer_as_it_was() -> None:
    weight, optimizer = sgd()
    rate = Rate([optimizer], 0.5)
    late = torch.nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [late], "lr": 4.0})
    late.grad = torch.ones(1)
    optimizer.step()
    assert (weight.item(), late.item()) == (-0.5, -2.0)
    rate.close()
    optimizer.step()
    assert (weight.item(), late.item()) == (-1.5, -6.0)


def test_a_group_without_a_rate_of_its_own_is_refused_only_where_it_matters() -> None:
    _, optimizer = sgd()
    optimizer.param_groups[0]["lr"] = None
    Rate([optimizer], 1.0)
    with pytest.raises(ConfigError, match=r"SGD, group 0: it has no lr .* set batch\.scale: none"):
        Rate([optimizer], 0.5)
