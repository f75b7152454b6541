"""The layouts that a model could have on so many GPUs, the fastest first."""

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from spec.workload.figure import Impossible, WorkloadError
from spec.workload.hardware import Hardware
from spec.workload.job import Job, impossibilities
from spec.workload.layout import Layout, Zero
from spec.workload.memory import memory
from spec.workload.model import Model
from spec.workload.timing import mfu, step
from spec.workload.training import Recompute, Training

MICRO_BATCHES = (1, 2, 4, 8)


class Candidate(NamedTuple):
    """A layout and its training, with what decides between them."""

    layout: Layout
    training: Training
    step_s: float
    mfu: float
    communication_share: float
    memory_gib: float


class Found(NamedTuple):
    """The best, and how many were looked at and had room."""

    best: tuple[Candidate, ...]
    tried: int
    fitting: int


def search(
    model: Model,
    training: Training,
    hardware: Hardware,
    gpus: int | None = None,
    keep: int = 10,
    base: Layout | None = None,
) -> Found:
    """The fastest layouts that fit in memory.

    Args: the training, whose micro batch and recomputation are chosen anew; GPUs, by default all; how many to keep;
    a layout whose other fields (overlaps, sequence parallelism) hold for all.
    Pruned: tensor within NVLink's reach; context ranks of 4,096 tokens and more; recomputation only where it is
    needed to fit; parameters sharded (ZeRO-3) only without a pipeline.
    Raises WorkloadError where none fits, with the smallest that was seen.
    """
    count = hardware.gpus if gpus is None else gpus
    if count < 1 or count > hardware.gpus:
        raise _none("gpus", f"{count} GPUs asked of {hardware.name}, which has {hardware.gpus}", "ask for some of them")
    found: list[Candidate] = []
    tried, least = 0, float("inf")
    for layout in layouts(model, hardware, count, training.global_batch, base or Layout()):
        for micro in MICRO_BATCHES:
            for recompute in (Recompute.SELECTIVE, Recompute.FULL):
                chosen = training.model_copy(update={"micro_batch": micro, "recompute": recompute})
                if micro > training.global_batch or impossibilities(model, layout, chosen, hardware):
                    break
                tried += 1
                made = Job(model, layout, chosen, hardware)
                held = memory(made).all
                least = min(least, held)
                if held <= hardware.gpu.memory_gib:
                    taken = step(made)
                    share = taken.waiting / taken.seconds
                    found.append(Candidate(layout, chosen, taken.seconds, mfu(made, taken), share, held))
                    break
    if not found:
        if not tried:
            raise _none(
                "training.global_batch",
                f"no layout of {count} GPUs divides {training.global_batch} sequences",
                "use a batch or a number of GPUs with more divisors",
            )
        raise _none(
            "gpus",
            f"{model.name} fits on no layout of {count} GPUs: the smallest takes {least:.0f} GiB a GPU of "
            f"{hardware.gpu.memory_gib:.0f}",
            "take more GPUs, a smaller model or sequence, or fewer optimizer bytes",
        )
    found.sort(key=lambda each: (each.step_s, each.memory_gib))
    return Found(tuple(found[:keep]), tried, len(found))


def layouts(model: Model, hardware: Hardware, gpus: int, batch: int, base: Layout) -> Iterator[Layout]:
    """Every layout worth a look."""
    for tensor in _divisors(gpus):
        if tensor > hardware.island or model.heads % tensor or model.inner % tensor:
            continue
        for pipeline in _divisors(gpus // tensor):
            if pipeline > model.layers:
                break
            for context in _divisors(gpus // tensor // pipeline):
                if context > 1 and (context > model.sequence // 4096 or model.sequence % context):
                    break
                data = gpus // tensor // pipeline // context
                if batch % data:
                    continue
                for expert in _experts(model, data * context):
                    yield from _stages(model, base, (tensor, pipeline, context, data, expert))


def _stages(model: Model, base: Layout, degrees: tuple[int, int, int, int, int]) -> Iterator[Layout]:
    tensor, pipeline, context, data, expert = degrees
    virtuals = _divisors(-(-model.layers // pipeline)) if pipeline > 1 else [1]
    zeros = (Zero.OPTIMIZER, Zero.PARAMETERS) if pipeline == 1 else (Zero.OPTIMIZER,)
    for virtual in virtuals:
        for zero in zeros:
            try:
                yield Layout.model_validate(
                    {
                        **base.model_dump(),
                        "name": f"tp{tensor} pp{pipeline}×{virtual} cp{context} dp{data} ep{expert} zero{zero:d}",
                        "tensor": tensor,
                        "pipeline": pipeline,
                        "virtual": virtual,
                        "context": context,
                        "data": data,
                        "expert": expert,
                        "zero": zero,
                        "shard": None,
                    }
                )
            except ValidationError:  # degrees that do not divide each other
                continue


def _experts(model: Model, ranks: int) -> list[int]:
    if model.experts is None:
        return [1]
    return [each for each in _divisors(ranks) if model.experts.count % each == 0]


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]


def _none(field: str, problem: str, advice: str) -> WorkloadError:
    return WorkloadError([Impossible(field=field, problem=problem, advice=advice)])
