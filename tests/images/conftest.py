"""The simulated NVML, compiled, and a process that asks it through pynvml."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.store import Builder
from images.vendor.gpus import simulated_gpus
from images.vendor.nvml import SONAME, compile_library, header
from spec.schema import Gpus

H100 = Gpus(model="NVIDIA H100 80GB HBM3", count=8, memory_gib=80, nvlinks=18, nvlink_gbps=3600)


class Nvml:
    """A process that has loaded the library, and the state file that it reads."""

    def __init__(self, library: Path, state: Path) -> None:
        self.state = state
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "MUSTER_SIMULATED_GPUS": str(state)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nvml_probe.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def write(self, text: str) -> None:
        """Replaces the state file by rename, as everybody must."""
        new = self.state.with_suffix(".new")
        new.write_text(text)
        new.replace(self.state)

    def ask(self, name: str, *arguments: Any, gpu: int | None = None) -> Any:
        """What a function answers, or `error N`."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"name": name, "gpu": gpu, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the library took its process down"
        reply = json.loads(line)
        return reply["value"] if "value" in reply else f"error {reply['error']}"


@pytest.fixture(scope="session")
def nvml_header() -> Path:
    """The folder of nvml.h; fetched at the first run."""
    return header(print)


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Runs compilers, without a lock to hold."""
    folder = tmp_path_factory.mktemp("build")
    return Builder(log=folder / "log", lock=os.open(folder / "lock", os.O_CREAT), say=print)


@pytest.fixture(scope="session")
def nvml_library(nvml_header: Path, builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libnvidia-ml.so.1 of driver 580.95.05."""
    folder = tmp_path_factory.mktemp("nvml")
    library = compile_library(folder, nvml_header, "580.95.05", 13000, builder)
    (folder / SONAME).symlink_to(library.name)
    return folder


@pytest.fixture(scope="session")
def healthy() -> str:
    """The state file of a healthy node of the lab."""
    return simulated_gpus(H100, "lab/gpu-0")


@pytest.fixture(scope="session")
def _nvml(nvml_library: Path, healthy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nvml]:
    asked = Nvml(nvml_library, tmp_path_factory.mktemp("state") / "gpus.ini")
    asked.write(healthy)
    assert asked.ask("nvmlInit") is None
    yield asked
    assert asked.process.stdin
    asked.process.stdin.close()
    assert asked.process.wait(timeout=10) == 0


@pytest.fixture
def nvml(_nvml: Nvml, healthy: str) -> Iterator[Nvml]:
    """NVML over eight healthy GPUs; each test finds them healthy again."""
    _nvml.write(healthy)
    yield _nvml
    _nvml.write(healthy)
