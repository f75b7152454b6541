"""Layouts of one workload beside each other."""

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

    layout: Layout
    step: Figure | None = None
    mfu: Figure | None = None
    tokens_per_gpu: Figure | None = None
    communication_share: Figure | None = None
    memory: Figure | None = None
    fits: bool = False
    slower: float | None = None
    """The step over the fastest that fits, or over the fastest where none does."""
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
            impossible.append(Row(layout=layout, impossible=str(error)))
    plans.sort(key=lambda each: (not each.memory.fits, each.step.seconds.value * each.gpus))
    rows = []
    for each in plans:
        best = plans[0].step.seconds.value * plans[0].gpus
        slower = each.step.seconds.value * each.gpus / best
        per_gpu = each.step.tokens_per_second
        rows.append(
            Row(
                layout=each.layout,
                step=each.step.seconds,
                mfu=each.step.mfu,
                tokens_per_gpu=per_gpu.model_copy(
                    update={"value": per_gpu.value / each.gpus, "unit": "tokens/s and GPU"}
                ),
                communication_share=each.step.communication_share,
                memory=each.memory.all,
                fits=each.memory.fits,
                slower=slower,
                distinct=slower > 1 + each.step.seconds.error,
                bottleneck=each.bottlenecks[0].what if each.bottlenecks else None,
            )
        )
    return Comparison(rows=(*rows, *impossible))
