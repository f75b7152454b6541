"""What GPUs can do, by the name that NVML gives them."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from spec.schema.base import Declared, Text
from spec.workload.figure import Impossible, WorkloadError
from spec.workload.training import Precision

Rate = Annotated[float, Field(gt=0)]


class Gpu(Declared):
    """One GPU model. Peaks in FLOP/s, dense (half of what data sheets print with sparsity); bandwidths in GB/s."""

    name: Text
    peaks: dict[Precision, Rate]
    memory_gib: Rate
    memory_gbs: Rate
    """Memory bandwidth."""
    nvlink: Annotated[float, Field(ge=0)]
    """All NVLinks together, in one direction; 0 where there are none."""
    efficiency: dict[Precision, Annotated[float, Field(gt=0, le=1)]]
    """The part of the peak that the kernels of a large transformer reach, without communication.

    Fitted, with `HALF`, `MOVES`, `GROUPED` and `LEAK`, to the published runs in `tests/spec/published` that are marked
    `use: fit`, and rounded; those marked `use: check` tell how well it carries over.
    """
    source: Text

    @model_validator(mode="after")
    def _each_peak_has_its_efficiency(self) -> Self:
        if set(self.peaks) != set(self.efficiency) or not self.peaks:
            raise ValueError("peaks and efficiency differ in their precisions: give both for each")
        if Precision.FP8 in self.peaks and Precision.BF16 not in self.peaks:
            raise ValueError("peaks has fp8 without bf16, in which attention stays: give bf16, too, and its efficiency")
        return self

    def peak(self, precision: Precision) -> float:
        """FLOP/s. Raises WorkloadError where the GPU does not have the precision."""
        if precision in self.peaks:
            return self.peaks[precision]
        known = ", ".join(each.value for each in self.peaks)
        raise WorkloadError(
            [
                Impossible(
                    field="training.precision",
                    problem=f"{self.name} does not multiply in {precision.value}",
                    advice=f"use one of {known}",
                )
            ]
        )


def _gpu(
    name: str,
    tflops: tuple[float, float, float],
    memory: tuple[float, float],
    nvlink: float,
    reached: tuple[float, float],
    source: str,
) -> Gpu:
    fp32, bf16, fp8 = (each * 1e12 for each in tflops)
    half = {Precision.FP16: bf16, Precision.BF16: bf16}
    return Gpu(
        name=name,
        peaks={Precision.FP32: fp32, **half, **({Precision.FP8: fp8} if fp8 else {})},
        memory_gib=memory[0],
        memory_gbs=memory[1],
        nvlink=nvlink,
        efficiency={
            **dict.fromkeys((Precision.FP32, *half), reached[0]),
            **({Precision.FP8: reached[1]} if fp8 else {}),
        },
        source=source,
    )


AMPERE, HOPPER, BLACKWELL = (0.75, 0.75), (0.58, 0.56), (0.50, 0.47)
"""Efficiencies in 16 and in 8 bits."""

CATALOGUE: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("NVIDIA A100-SXM4-40GB", (19.5, 312, 0), (40, 1555), 300, AMPERE, "NVIDIA A100 data sheet"),
        _gpu("NVIDIA A100-SXM4-80GB", (19.5, 312, 0), (80, 2039), 300, AMPERE, "NVIDIA A100 data sheet"),
        _gpu("NVIDIA H100 80GB HBM3", (67, 989, 1979), (80, 3350), 450, HOPPER, "NVIDIA H100 data sheet, SXM"),
        _gpu(
            "NVIDIA H800", (67, 989, 1979), (80, 3350), 200, HOPPER, "H100 with 400 GB/s of NVLink (arXiv:2412.19437)"
        ),
        _gpu("NVIDIA H200", (67, 989, 1979), (141, 4800), 450, HOPPER, "NVIDIA H200 data sheet, SXM"),
        _gpu(
            "NVIDIA B200",
            (75, 2250, 4500),
            (180, 8000),
            900,
            BLACKWELL,
            "NVIDIA DGX B200 data sheet; dgxc-benchmarking",
        ),
        _gpu(
            "NVIDIA GB200",
            (80, 2450, 4900),
            (186, 8000),
            900,
            BLACKWELL,
            "NVIDIA GB200 NVL72 data sheet; dgxc-benchmarking",
        ),
    )
}
"""By NVML's product name."""


def gpu(name: str) -> Gpu:
    """The GPU of a product name. Raises WorkloadError where it is not in the catalogue."""
    if found := CATALOGUE.get(name):
        return found
    raise WorkloadError(
        [
            Impossible(
                field="hardware.gpu",
                problem=f"the planner knows no GPU {name!r}",
                advice=f"declare it as `gpu` in the workload, or name one of {', '.join(CATALOGUE)}",
            )
        ]
    )
