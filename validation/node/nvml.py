"""NVIDIA's management library through pynvml: one question at a time, and no answer is never a number."""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from validation.node.measure import Unmeasurable

T = TypeVar("T")


class Gpu:
    """One GPU. Called with the name of a query, as in `gpu("Temperature", sensor)`, it gives NVML's answer."""

    def __init__(self, index: int, handle: Any) -> None:
        self.name = f"gpu-{index}"
        self.handle = handle

    def __call__(self, query: str, *arguments: Any) -> Any:
        """Raises pynvml.NVMLError where the GPU does not answer."""
        return getattr(pynvml, f"nvmlDeviceGet{query}")(self.handle, *arguments)


class Nvml:
    """The library, opened at the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False

    def each_gpu(self, read: Callable[[Gpu], T]) -> dict[str, T]:
        """What is read of each GPU, by `gpu-0`, `gpu-1`, …: of all of them or of none.

        Raises Unmeasurable where there is no GPU or one of them does not support the question, RuntimeError where one
        fails.
        """
        found = {}
        with self._alone():
            with _translated("NVML"):
                gpus = [Gpu(i, pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
            for gpu in gpus:
                with _translated(gpu.name):
                    found[gpu.name] = read(gpu)
        if not found:
            raise Unmeasurable("NVML sees no GPU")
        return found

    def system(self, read: Callable[[], T]) -> T:
        """What is read of the driver rather than of a GPU."""
        with self._alone(), _translated("NVML"):
            return read()

    @property
    def simulated(self) -> bool:
        """Whether the library says of itself that its GPUs are simulated. False where there is no library."""
        library = pynvml.nvmlLib
        return library is not None and hasattr(library, "musterSimulated")

    def source(self) -> str:
        """Where values come from, for people. Raises as `system` does."""
        version = self.system(pynvml.nvmlSystemGetDriverVersion)
        return f"NVML {version}{' (simulated)' if self.simulated else ''}"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One question at a time: a library that hangs on one is not asked again."""
        if not self._lock.acquire(timeout=0.5):
            raise TimeoutError("NVML still hangs on an earlier question")
        try:
            if not self._open:
                with _translated("NVML"):
                    pynvml.nvmlInit()
                self._open = True
            yield
        finally:
            self._lock.release()


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as error:
        raise Unmeasurable(f"{what}: {error}") from None
    except pynvml.NVMLError_LibraryNotFound:
        raise Unmeasurable("there is no NVML library: the GPU driver is not installed") from None
    except (pynvml.NVMLError, ctypes.ArgumentError) as error:
        raise RuntimeError(f"{what}: {error}") from None
