"""One step in seconds: what computes, what waits, and for what."""

from typing import NamedTuple

from spec.workload.compute import Compute, bubble, compute, update_seconds
from spec.workload.job import Job
from spec.workload.traffic import Flow, Hides, Kind, flows

LEAK = 0.2
"""The part of a hidden flow that is felt none the less: it takes the computation's processors and memory bandwidth.

Fitted with the efficiencies in `gpus.py`."""


class Exposed(NamedTuple):
    """A flow and the part of its time that nothing hides."""

    flow: Flow
    window: float
    """Seconds of computation beside which it can run."""
    seconds: float


class Step(NamedTuple):
    """One step of the slowest GPU, seconds."""

    compute: Compute
    busy: float
    """Computing."""
    bubble: float
    """Waiting for the pipeline to fill and drain."""
    update: float
    exposed: tuple[Exposed, ...]

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.busy + self.bubble + self.update + self.waiting

    @property
    def waiting(self) -> float:
        """For the network."""
        return sum(each.seconds for each in self.exposed)

    def waiting_for(self, kind: Kind) -> float:
        """For one kind of communication."""
        return sum(each.seconds for each in self.exposed if each.flow.kind is kind)


def step(job: Job) -> Step:
    """The time of one step.

    Exposed is what a flow takes beyond the computation beside which it can run: Σ max(LEAK·t, t - that computation),
    with t = bytes/(η·BW) + α·messages. Flows that share a window share it, the first come first.
    """
    work = compute(job)
    m = job.microbatches
    windows = {
        Hides.NOTHING: 0.0,
        Hides.LINEAR: m * (work.microbatch - work.attention),
        Hides.ATTENTION: m * work.attention,
        Hides.MICROBATCH: m * work.microbatch,
        Hides.FORWARD: work.forward,
        Hides.BACKWARD: work.backward,
        Hides.STEP: m * work.microbatch,
    }
    used = dict.fromkeys(Hides, 0.0)
    exposed, repeated = [], 0.0
    for flow in flows(job, work.layers):
        free = max(0.0, windows[flow.hides] - used[flow.hides])
        waits = max(flow.seconds - free, LEAK * flow.seconds)
        used[flow.hides] += flow.seconds - waits
        exposed.append(Exposed(flow, free, waits))
        if flow.repeated:
            repeated += waits
    busy = m * work.microbatch
    return Step(
        compute=work,
        busy=busy,
        bubble=bubble(job) * (busy + repeated),
        update=update_seconds(job),
        exposed=tuple(exposed),
    )


def mfu(job: Job, taken: Step) -> float:
    """Model FLOP utilisation: useful FLOPs over what the GPUs' peak would have done (PaLM, arXiv:2204.02311)."""
    peak = job.hardware.gpu.peak(job.training.precision) * job.layout.trainers
    return taken.compute.model_flops / (taken.seconds * peak)
