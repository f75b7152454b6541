"""GPUs, as NVML tells of them. Facts of single GPUs are keyed `gpu-0`, `gpu-1`, …"""

import contextlib
import ctypes
from collections.abc import Callable, Iterable
from typing import TypeVar

import pynvml  # type: ignore[import-untyped]

from validation.node.measure import Unmeasurable, measure
from validation.node.nvml import Gpu, Nvml

T = TypeVar("T")

GIB = 2**30

THROTTLES = {
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
}
"""Clock event reasons that make a GPU slower than its load asks (nvml.h, nvmlClocksEventReasons)."""

CHOSEN_CLOCKS = 0x001 | 0x002 | 0x100
"""Idle, and clocks that an administrator or a display chose: no fault."""

FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


@measure("gpu.count", unit="GPUs")
def count(nvml: Nvml) -> int:
    """How many GPUs the driver sees. One that fell off the bus is not among them."""
    return int(nvml.system(pynvml.nvmlDeviceGetCount))


@measure("gpu.model", per="gpu")
def model(nvml: Nvml) -> dict[str, str]:
    """Product names, as in `NVIDIA H100 80GB HBM3`."""
    return nvml.each_gpu(lambda gpu: str(gpu("Name")))


@measure("gpu.driver_version")
def driver_version(nvml: Nvml) -> str:
    """The version of the loaded driver, as in `580.95.05`."""
    return str(nvml.system(pynvml.nvmlSystemGetDriverVersion))


@measure("gpu.cuda_version")
def cuda_version(nvml: Nvml) -> str:
    """The newest CUDA that the driver can run, as in `13.0`."""
    number = int(nvml.system(pynvml.nvmlSystemGetCudaDriverVersion))
    return f"{number // 1000}.{number % 1000 // 10}"


@measure("gpu.memory_gib", unit="GiB", per="gpu")
def memory_gib(nvml: Nvml) -> dict[str, float]:
    """All memory of each GPU; somewhat less than its product name says."""
    return nvml.each_gpu(lambda gpu: round(gpu("MemoryInfo").total / GIB, 2))


@measure("gpu.temperature_c", unit="°C", per="gpu")
def temperature_c(nvml: Nvml) -> dict[str, int]:
    """The temperature of each GPU's die."""
    return nvml.each_gpu(lambda gpu: int(gpu("Temperature", pynvml.NVML_TEMPERATURE_GPU)))


@measure("gpu.ecc_mode", per="gpu")
def ecc_mode(nvml: Nvml) -> dict[str, bool]:
    """Whether each GPU corrects memory errors now, not after the next reset."""
    return nvml.each_gpu(lambda gpu: bool(gpu("EccMode")[0]))


@measure("gpu.ecc_uncorrected", unit="errors", per="gpu")
def ecc_uncorrected(nvml: Nvml) -> dict[str, int]:
    """Uncorrected ECC errors of each GPU since its last reset.

    Source: NVML total volatile uncorrected errors.
    Raises Unmeasurable where ECC is off or the call is not supported: that is not zero.
    """
    return _ecc(nvml, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)


@measure("gpu.ecc_corrected", unit="errors", per="gpu")
def ecc_corrected(nvml: Nvml) -> dict[str, int]:
    """Corrected ECC errors of each GPU since its last reset; many of them announce worse ones."""
    return _ecc(nvml, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)


def _ecc(nvml: Nvml, kind: int) -> dict[str, int]:
    def read(gpu: Gpu) -> int:
        if not gpu("EccMode")[0]:
            raise Unmeasurable(f"{gpu.name}: ECC is off")
        return int(gpu("TotalEccErrors", kind, pynvml.NVML_VOLATILE_ECC))

    return nvml.each_gpu(read)


@measure("gpu.remapped_rows", unit="rows", per="gpu")
def remapped_rows(nvml: Nvml) -> dict[str, dict[str, int | bool]]:
    """`{correctable, uncorrectable, pending, failure}` of each GPU: rows replaced because of errors of either kind,
    whether a replacement waits for a reset, and whether one failed because the spare rows are used up."""

    def read(gpu: Gpu) -> dict[str, int | bool]:
        correctable, uncorrectable, pending, failure = gpu("RemappedRows")
        return {
            "correctable": int(correctable),
            "uncorrectable": int(uncorrectable),
            "pending": bool(pending),
            "failure": bool(failure),
        }

    return nvml.each_gpu(read)


@measure("gpu.throttle_reasons", per="gpu")
def throttle_reasons(nvml: Nvml) -> dict[str, list[str]]:
    """What makes each GPU slower than its load asks; idleness and clocks set on purpose are left out."""
    return nvml.each_gpu(lambda gpu: throttles(int(gpu("CurrentClocksThrottleReasons"))))


def throttles(mask: int) -> list[str]:
    """The names of the reasons in NVML's mask. A bit that has no name here is named by its number."""
    bits = [1 << i for i in range(64) if mask & ~CHOSEN_CLOCKS & (1 << i)]
    return [THROTTLES.get(bit, f"unknown {bit:#x}") for bit in bits]


@measure("gpu.pcie_link", per="gpu")
def pcie_link(nvml: Nvml) -> dict[str, dict[str, int]]:
    """`{generation, width, max_generation, max_width}` of each GPU's link to the host.

    An idle GPU may lower its generation to save power; a width below the maximum is always a fault.
    """
    return nvml.each_gpu(
        lambda gpu: {
            "generation": int(gpu("CurrPcieLinkGeneration")),
            "width": int(gpu("CurrPcieLinkWidth")),
            "max_generation": int(gpu("MaxPcieLinkGeneration")),
            "max_width": int(gpu("MaxPcieLinkWidth")),
        }
    )


@measure("gpu.nvlinks_active", unit="links", per="gpu")
def nvlinks_active(nvml: Nvml) -> dict[str, int]:
    """How many NVLink links of each GPU are up. Raises Unmeasurable where it has none."""
    return nvml.each_gpu(
        lambda gpu: sum(
            map(bool, _supported(lambda link: gpu("NvLinkState", link), range(pynvml.NVML_NVLINK_MAX_LINKS)))
        )
    )


@measure("gpu.nvlink_errors", unit="errors", per="gpu")
def nvlink_errors(nvml: Nvml) -> dict[str, int]:
    """Replays, recoveries and CRC errors of all NVLink links of each GPU since the driver was loaded."""
    counters = (
        pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
        pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
        pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
        pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
    )
    pairs = [(link, counter) for link in range(pynvml.NVML_NVLINK_MAX_LINKS) for counter in counters]
    return nvml.each_gpu(lambda gpu: sum(map(int, _supported(lambda pair: gpu("NvLinkErrorCounter", *pair), pairs))))


def _supported(read: Callable[[T], int], items: Iterable[T]) -> list[int]:
    """What can be read of the items; links that a GPU does not have are left out.

    Raises NVMLError_NotSupported where nothing can be.
    """
    found = []
    for item in items:
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            found.append(read(item))
    if not found:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return found


@measure("gpu.persistence", per="gpu")
def persistence(nvml: Nvml) -> dict[str, bool]:
    """Whether the driver keeps each GPU initialised while nobody uses it."""
    return nvml.each_gpu(lambda gpu: bool(gpu("PersistenceMode")))


@measure("gpu.mig_mode", per="gpu")
def mig_mode(nvml: Nvml) -> dict[str, bool]:
    """Whether each GPU is partitioned now, not after the next reset. One that cannot be is not.

    Source: nvml.h, nvmlDeviceGetMigMode: NVML_ERROR_NOT_SUPPORTED says that the device does not support MIG mode, and
    nothing else. A driver that does not know the question (NVML_ERROR_FUNCTION_NOT_FOUND) says nothing of the device.
    """

    def read(gpu: Gpu) -> bool:
        try:
            return bool(gpu("MigMode")[0])
        except pynvml.NVMLError_NotSupported:
            return False

    return nvml.each_gpu(read)


@measure("gpu.power_limit_w", unit="W", per="gpu")
def power_limit_w(nvml: Nvml) -> dict[str, float]:
    """The power limit that each GPU keeps to."""
    return nvml.each_gpu(lambda gpu: gpu("PowerManagementLimit") / 1000)


@measure("gpu.power_limit_percent", unit="%", per="gpu")
def power_limit_percent(nvml: Nvml) -> dict[str, float]:
    """Each GPU's power limit over its default limit: below 100, somebody made it slower."""
    return nvml.each_gpu(lambda gpu: round(100 * gpu("PowerManagementLimit") / gpu("PowerManagementDefaultLimit"), 1))


@measure("gpu.processes", unit="processes", per="gpu")
def processes(nvml: Nvml) -> dict[str, int]:
    """Processes that compute on each GPU: on a node that is closed, somebody's remains."""
    return nvml.each_gpu(lambda gpu: len(gpu("ComputeRunningProcesses")))


@measure("gpu.fabric_state", per="gpu")
def fabric_state(nvml: Nvml) -> dict[str, str]:
    """Each GPU's registration with the NVSwitch fabric: `completed` where Fabric Manager did its work.

    Raises Unmeasurable where the GPUs have no such fabric.
    """

    def read(gpu: Gpu) -> str:
        info = pynvml.c_nvmlGpuFabricInfo_t()
        gpu("GpuFabricInfo", ctypes.byref(info))
        if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        state = FABRIC_STATES.get(info.state, f"unknown {info.state}")
        return state if info.status == pynvml.NVML_SUCCESS else f"{state}, error {info.status}"

    return nvml.each_gpu(read)
