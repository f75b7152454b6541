"""Layouts, of one workload or of several, beside each other."""

from collections.abc import Sequence

from spec.workload.figure import Figure, Result, WorkloadError
from spec.workload.hardware import Hardware
from spec.workload.layout import Layout
from spec.workload.model import Model
from spec.workload.plan import plan
from spec.workload.result import Plan
from spec.workload.training import Run, Training


class Row(Result):
    """One layout: its plan's main figures, or why it cannot run."""

    model: str
    layout: Layout
    gpus: int
    step: Figure | None = None
    mfu: Figure | None = None
    tokens_per_gpu: Figure | None = None
    communication_share: Figure | None = None
    memory: Figure | None = None
    fits: bool = False
    slower: float | None = None
    """GPU seconds of a token over those of the fastest that fits, or of the fastest where none does."""
    distinct: bool = False
    """Whether it differs from that one by more than the planner's error."""
    bottleneck: str | None = None
    impossible: str | None = None


class Comparison(Result):
    """All layouts, those that fit first, the fastest of them first."""

    rows: tuple[Row, ...]


def compare(
    model: Model, layouts: Sequence[Layout], training: Training, hardware: Hardware, run: Run | None = None
) -> Comparison:
    """The layouts by speed for each GPU: layouts may take different numbers of GPUs."""
    plans: list[Plan] = []
    impossible: list[Row] = []
    for layout in layouts:
        try:
            plans.append(plan(model, layout, training, hardware, run))
        except WorkloadError as error:
            impossible.append(refused(model, layout, error))
    return Comparison(rows=(*rows(plans), *impossible))


def refused(model: Model, layout: Layout, why: WorkloadError) -> Row:
    """The row of a layout that cannot run."""
    return Row(model=model.name, layout=layout, gpus=layout.gpus, impossible=str(why))


def in_order(plans: Sequence[Plan]) -> list[Plan]:
    """Those that fit first, and of these the ones that take the fewest GPU seconds a token."""
    return sorted(plans, key=lambda each: (not each.memory.fits, _gpu_seconds(each)))


def rows(plans: Sequence[Plan]) -> list[Row]:
    """The plans' rows, in their order."""
    ordered = in_order(plans)
    made = []
    for each in ordered:
        slower = _gpu_seconds(each) / _gpu_seconds(ordered[0])
        rate = each.step.tokens_per_second
        made.append(
            Row(
                model=each.model.name,
                layout=each.layout,
                gpus=each.gpus,
                step=each.step.seconds,
                mfu=each.step.mfu,
                tokens_per_gpu=rate.model_copy(update={"value": rate.value / each.gpus, "unit": "tokens/s and GPU"}),
                communication_share=each.step.communication_share,
                memory=each.memory.all,
                fits=each.memory.fits,
                slower=slower,
                distinct=slower > 1 + each.step.seconds.error,
                bottleneck=each.bottlenecks[0].what if each.bottlenecks else None,
            )
        )
    return made


def _gpu_seconds(each: Plan) -> float:
    return each.gpus / each.step.tokens_per_second.value
