"""The GPUs of this machine, as NVML tells of them now. A GPU that does not answer says why: it is not idle."""

from collections.abc import Callable
from typing import Any

from validation.diagnose.live.snapshot import Gpu
from validation.node.gpu import GIB, throttles
from validation.node.measure import Unmeasurable
from validation.node.nvml import Gpu as Device
from validation.node.nvml import Nvml

_SLOWED = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Of the reasons for lower clocks; a power cap that is reached is usual under load."""


def gpus(nvml: Nvml) -> tuple[Gpu, ...]:
    """Raises Unmeasurable, RuntimeError, TimeoutError: where there is no driver, no GPU, or it hangs."""
    seen = nvml.each_gpu(_gpu)
    return tuple(seen.values())


def _gpu(device: Device) -> Gpu:
    wrong: list[str] = []

    def ask(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Unmeasurable:
            return None
        except Exception as error:  # NVML's errors are many, and a GPU that is lost raises at any question
            text = str(error)
            if "Not Supported" not in text and "Function Not Found" not in text:
                wrong.append(text)
            return None

    memory = ask(lambda: device("MemoryInfo"))
    use = ask(lambda: device("UtilizationRates"))
    clock = ask(lambda: device("ClockInfo", 1))  # NVML_CLOCK_SM
    mask = ask(lambda: device("CurrentClocksThrottleReasons"))
    uncorrected = ask(lambda: device("TotalEccErrors", 1, 0) if device("EccMode")[0] else None)
    return Gpu(
        name=device.name,
        busy_percent=int(use.gpu) if use is not None else None,
        memory_used_gib=round(memory.used / GIB, 2) if memory is not None else None,
        memory_gib=round(memory.total / GIB, 2) if memory is not None else None,
        clock_mhz=int(clock) if clock is not None else None,
        throttled=tuple(each for each in throttles(int(mask)) if each in _SLOWED) if mask is not None else (),
        uncorrected=int(uncorrected) if uncorrected is not None else None,
        wrong=wrong[0] if wrong else "",
    )
