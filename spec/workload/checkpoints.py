"""Checkpoints: their size, what storage must do for them, how often to write one, and what failures cost.

Young 1974; Daly 2006; the availability form is arXiv:2410.18124's.
"""

from math import sqrt
from typing import NamedTuple

from spec.workload.model import Model
from spec.workload.training import Run, Training


def checkpoint_bytes(model: Model, training: Training) -> float:
    """Weights and optimizer state: 14 bytes a parameter in bf16 with Adam in fp32 (BLOOM: 2.3 TB of 176 billion)."""
    return model.total_parameters * (training.weight_bytes + training.optimizer_bytes)


def young(stall_s: float, mtbf_s: float) -> float:
    """Seconds between checkpoints that lose least: √(2·C·M), where C is what a checkpoint holds the job up."""
    return sqrt(2 * stall_s * mtbf_s)


def interval(stall_s: float, mtbf_s: float) -> float:
    """Young's interval with Daly's correction for failures that are near: √(2CM) - C, at least C."""
    return max(stall_s, young(stall_s, mtbf_s) - stall_s)


def availability_interval(stall_s: float, failure_s: float, restart_s: float) -> float:
    """Tc = Ts + √(2(Tf + Tr)Ts + Ts²): from one checkpoint's start to the next one's (arXiv:2410.18124)."""
    return stall_s + sqrt(2 * (failure_s + restart_s) * stall_s + stall_s**2)


class Goodput(NamedTuple):
    """Where a run's time goes, as parts of it."""

    useful: float
    checkpoints: float
    lost: float
    """Work done again after interruptions."""
    restarts: float


def mtbf(run: Run, gpus: int) -> float:
    """Seconds between interruptions of a job of this many GPUs; infinite where nothing fails."""
    rate = run.failures.per_gpu_hour * gpus
    return 3600 / rate if rate else float("inf")


def goodput(stall_s: float, every_s: float, restart_s: float, mtbf_s: float) -> Goodput:
    """The parts of a long run.

    Each second of useful work costs stall/interval in checkpoints. An interruption costs the restart and, on average,
    half an interval with its stall. Interruptions come at 1/M, restarts included: to first order, as Daly has it.
    """
    stall = stall_s / every_s
    lost = (every_s + stall_s) / 2 / mtbf_s
    restart = restart_s / mtbf_s
    whole = 1 + stall + lost + restart
    return Goodput(1 / whole, stall / whole, lost / whole, restart / whole)


def write_rate(size: float, run: Run, every_s: float, step_s: float) -> float:
    """Bytes/s that storage must take: within the stall, or until the next checkpoint, or within a preemption's grace.

    A grace that a step alone uses up leaves no time: infinite.
    """
    rate = size / (every_s if run.asynchronous else run.stall_s)
    if run.grace_s is None:
        return rate
    left = run.grace_s - step_s
    return max(rate, size / left) if left > 0 else float("inf")
