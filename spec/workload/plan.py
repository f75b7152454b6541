"""The plan of a workload on a cluster: every figure with its source and its error."""

from math import sqrt

from spec.workload.bands import FAILURES, MEMORY, inverse, step_error
from spec.workload.bottlenecks import bottlenecks
from spec.workload.checkpoints import checkpoint_bytes, goodput, interval, mtbf
from spec.workload.compute import bubble
from spec.workload.figure import Figure
from spec.workload.hardware import Hardware
from spec.workload.job import Job, job
from spec.workload.layout import Layout
from spec.workload.memory import Memory, memory
from spec.workload.model import Model
from spec.workload.needs import Need, needs
from spec.workload.result import Bandwidth, Bottleneck, Checkpoints, Cost, MemoryUse, Plan, StepTime, Traffic
from spec.workload.timing import Exposed, Step, mfu, step
from spec.workload.training import Run, Training

_PIPELINE = "(p-1)/(v·m), interleaved 1F1B (arXiv:2104.04473)"
_STEP = "m·(computing + exposed communication)·(1 + bubble) + update; spec.workload.timing"
_COUNTED = "counted from the declared shape"


def plan(model: Model, layout: Layout, training: Training, hardware: Hardware, run: Run | None = None) -> Plan:
    """The whole plan. Raises WorkloadError where the workload cannot run; memory that does not suffice is a result."""
    made, run = job(model, layout, training, hardware), run or Run()
    taken, held = step(made), memory(made)
    between = mtbf(run, layout.gpus)
    every = run.interval_s or interval(run.stall_s, between)
    if every == float("inf"):  # nothing fails: one checkpoint a day
        every = 86_400.0
    needed = list(needs(made, taken, run, every))
    kept = _checkpoints(made, run, between, every, needed)
    found = bottlenecks(made, taken, held, needed)
    band = step_error(made)
    return Plan(
        model=model,
        layout=layout,
        training=training,
        run=run,
        cluster=hardware.name,
        gpus=layout.gpus,
        parameters=_figure(model.total_parameters, "parameters", _COUNTED),
        active_parameters=_figure(model.matrix_parameters, "parameters", "those that a token is multiplied with"),
        microbatches=made.microbatches,
        step=_step(made, taken, band),
        memory=_memory(made, held),
        traffic=tuple(_traffic(each, band) for each in taken.exposed),
        checkpoints=kept,
        bandwidth=tuple(_bandwidth(each, band) for each in needed),
        bottlenecks=tuple(
            Bottleneck(
                what=each.what,
                cost=_figure(each.cost, "of the step", "its seconds / the step's", band),
                evidence=each.evidence,
                change=each.change,
            )
            for each in found
        ),
        cost=_cost(made, taken, run, kept.goodput.value, band),
        measured=bool(hardware.between or hardware.in_node),
    )


def _figure(value: float, unit: str, source: str, error: float = 0.0) -> Figure:
    return Figure(value=value, unit=unit, source=source, error=error)


def _step(made: Job, taken: Step, band: float) -> StepTime:
    tokens = made.step_tokens
    useful = mfu(made, taken)
    how = made.training.achieved_source or f"{made.hardware.gpu.name}: {made.hardware.gpu.source}; fitted efficiency"

    def seconds(value: float, source: str) -> Figure:
        return _figure(value, "s", source, band)

    return StepTime(
        seconds=seconds(taken.seconds, _STEP),
        computing=seconds(taken.busy, f"FLOPs / (peak × efficiency) of the slowest stage ({how})"),
        bubble=seconds(taken.bubble, _PIPELINE),
        update=seconds(taken.update, "optimizer state, gradients and weights through memory once"),
        waiting=seconds(taken.waiting, "Σ exposed communication"),
        bubble_ratio=_figure(bubble(made), "of the busy time", _PIPELINE),
        communication_share=_figure(taken.waiting / taken.seconds, "of the step", "waiting / step", band),
        mfu=_figure(
            useful, "of the peak", "(6·N + 12·L·s·a)·tokens / (step · GPUs · peak) (arXiv:2204.02311)", inverse(band)
        ),
        tokens_per_second=_figure(tokens / taken.seconds, "tokens/s", "global batch × sequence / step", inverse(band)),
        flops_per_gpu=_figure(
            taken.compute.model_flops / taken.seconds / made.layout.trainers,
            "FLOP/s",
            "model FLOPs / (step · GPUs)",
            inverse(band),
        ),
    )


def _memory(made: Job, held: Memory) -> MemoryUse:
    def gib(value: float, source: str, error: float = 0.0) -> Figure:
        return _figure(value, "GiB", source, error)

    zero = "by ZeRO stage (arXiv:1910.02054)"
    return MemoryUse(
        weights=gib(held.weights, zero),
        gradients=gib(held.gradients, zero),
        optimizer=gib(held.optimizer, zero),
        activations=gib(held.activations, "arXiv:2205.05198, table 2 and section 4.2.3", MEMORY),
        logits=gib(held.logits, "fp32 scores and their gradient", MEMORY),
        overhead=gib(held.overhead, "assumed: CUDA, NCCL, workspaces", 0.5),
        all=gib(held.all, "sum", MEMORY),
        available=gib(made.hardware.gpu.memory_gib, made.hardware.gpu.source),
        fits=held.all <= made.hardware.gpu.memory_gib,
    )


def _traffic(each: Exposed, band: float) -> Traffic:
    flow = each.flow

    def sent(value: float) -> Figure:
        return _figure(value, "bytes", flow.source)

    return Traffic(
        kind=flow.kind.value,
        collective=flow.collective,
        ranks=flow.group.size,
        tier=flow.group.tier.value,
        sent=sent(flow.sent.all),
        in_node=sent(flow.sent.node),
        leaf=sent(flow.sent.leaf),
        spine=sent(flow.sent.spine),
        messages=_figure(flow.messages, "a step", "layers × microbatches × collectives, or buckets"),
        message=_figure(flow.message_bytes, "bytes", "what a rank sends or receives in one"),
        hides_beside=flow.hides.value,
        seconds=_figure(flow.seconds, "s", "messages × (α + bytes/(η·BW)), or the measured size curve", band),
        exposed=_figure(each.seconds, "s", "max(LEAK·t, t - computation beside it)", band),
    )


def _checkpoints(made: Job, run: Run, between: float, every: float, needed: list[Need]) -> Checkpoints:
    size = checkpoint_bytes(made.model, made.training)
    parts = goodput(run.stall_s, every, run.restart_s, between)
    by_purpose = {each.purpose: each for each in needed}
    writing, reading = by_purpose["checkpoints written, servers"], by_purpose["restart, servers"]
    how = "declared" if run.interval_s else "√(2·C·M) - C with C the stall (Young 1974, Daly 2006)"

    def part(value: float, source: str) -> Figure:
        return _figure(value, "of the time", source, FAILURES)

    return Checkpoints(
        size=_figure(size, "bytes", "(weight + optimizer bytes) · P", 0.1),
        interval=_figure(every, "s", how, 0.0 if run.interval_s else sqrt(1 + FAILURES) - 1),
        mtbf=_figure(min(between, 1e12), "s", f"1 / (rate · GPUs); {run.failures.source}", FAILURES),
        write=_figure(min(writing.needed, 1e12), "GB/s", writing.source, 0.1),
        restart_read=_figure(reading.needed, "GB/s", reading.source, 0.1),
        goodput=_figure(parts.useful, "of the time", "1 / (1 + C/T + (T+C)/2M + R/M)", FAILURES * (1 - parts.useful)),
        lost_to_checkpoints=part(parts.checkpoints, "C/T"),
        lost_to_repeated_work=part(parts.lost, "(T+C)/2M"),
        lost_to_restarts=part(parts.restarts, "R/M"),
        failures=run.failures.source,
    )


def _bandwidth(each: Need, band: float) -> Bandwidth:
    return Bandwidth(
        plane=each.plane,
        purpose=each.purpose,
        needed=_figure(min(each.needed, 1e12), "GB/s", each.source, band),
        available=_figure(each.available, "GB/s", "the spec, or the cluster's measurement"),
        utilisation=min(each.utilisation, 1e12),
        enough=each.utilisation <= 1,
    )


def _cost(made: Job, taken: Step, run: Run, useful: float, band: float) -> Cost | None:
    if run.tokens is None:
        return None
    seconds = run.tokens / made.step_tokens * taken.seconds / useful
    hours = seconds / 3600 * made.layout.gpus
    price = hours * run.price if run.price is not None else None

    def figure(value: float, unit: str, source: str) -> Figure:
        return _figure(value, unit, source, band)

    return Cost(
        gpu_hours=figure(hours, "GPU hours", "tokens / (tokens/s · goodput) · GPUs"),
        days=figure(seconds / 86_400, "days", "tokens / (tokens/s · goodput)"),
        price=None if price is None else figure(price, "currency", "GPU hours × price"),
        per_billion_tokens=None
        if price is None
        else figure(price / run.tokens * 1e9, "currency", "GPU hours × price / tokens"),
    )
