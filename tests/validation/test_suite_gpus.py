"""The suite's GPU measurements against the simulated library behind the real NVML interface."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest
from suite_shapes import SHAPES, fits
from test_suite_session import run

from spec.schema import Gpus
from validation.node.gpu import mig_mode, throttles
from validation.node.measure import Unmeasurable
from validation.node.nvml import Nvml

H100 = Gpus(model="NVIDIA H100 80GB HBM3", count=8, memory_gib=80, nvlinks=18, nvlink_gbps=3600)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled library."""
    if not shutil.which("cc") and not shutil.which("gcc"):
        pytest.skip("there is no C compiler")
    from images.store import Builder
    from images.vendor.nvml import SONAME, compile_library, header

    folder = tmp_path_factory.mktemp("nvml")
    lock = os.open(folder / "lock", os.O_CREAT)
    builder = Builder(log=folder / "log", lock=lock, say=print)
    built = compile_library(folder, header(print), "580.95.05", 13000, builder)
    if not (folder / SONAME).exists():
        (folder / SONAME).symlink_to(built)
    return folder


def ask(library: Path, text: str, folder: Path, **expectations: Any) -> dict[str, dict[str, Any]]:
    state = folder / "gpus.ini"
    state.write_text(text)
    only = [name for name in SHAPES if name.startswith("gpu.")]
    told, done = run(
        {"node": "gpu-0", "expectations": expectations, "options": {"only": only}},
        LD_LIBRARY_PATH=str(library),
        MUSTER_SIMULATED_GPUS=str(state),
    )
    assert told.fault is None, done.stderr.decode()
    assert told.header
    return {each["measure"]: each for each in told.measurements} | {"identity": told.header["identity"]}


@pytest.fixture
def healthy() -> str:
    from images.vendor.gpus import simulated_gpus

    return simulated_gpus(H100, "gpu-0")


def test_healthy_gpus_say_that_they_are_simulated(library: Path, healthy: str, tmp_path: Path) -> None:
    found = ask(library, healthy, tmp_path)
    assert found["gpu.count"]["value"] == 8
    assert set(found["gpu.model"]["value"].values()) == {H100.model}
    assert list(found["gpu.model"]["value"]) == [f"gpu-{i}" for i in range(8)]
    assert found["gpu.driver_version"]["value"] == "580.95.05"
    assert found["gpu.cuda_version"]["value"] == "13.0"
    assert set(found["gpu.nvlinks_active"]["value"].values()) == {18}
    assert set(found["gpu.ecc_uncorrected"]["value"].values()) == {0}
    assert len(set(found["identity"]["gpus"])) == 8
    for name, each in found.items():
        if name != "identity" and each["outcome"] == "measured":
            assert each["simulated"] is True, name
            assert "(simulated)" in each["source"], name
            assert fits(each["value"], SHAPES[name]), (name, each["value"])
    unknown = {name for name, each in found.items() if name != "identity" and each["outcome"] != "measured"}
    assert unknown <= {"gpu.fabric_state", "gpu.processes"}


def test_a_key_that_is_gone_is_unknown_rather_than_zero(library: Path, healthy: str, tmp_path: Path) -> None:
    keys = set(re.findall(r"^([\w.]*ecc[\w.]*)\s*=", healthy, re.MULTILINE))
    assert keys, "the state file names no ECC counter"
    without = "\n".join(line for line in healthy.splitlines() if line.split("=")[0].strip() not in keys)
    found = ask(library, without, tmp_path)
    assert found["gpu.ecc_uncorrected"]["outcome"] == "unmeasurable"
    assert "value" not in found["gpu.ecc_uncorrected"]
    assert found["gpu.ecc_uncorrected"]["simulated"] is True
    assert found["gpu.count"]["value"] == 8


def test_a_gpu_that_cannot_be_partitioned_is_not(library: Path, healthy: str, tmp_path: Path) -> None:
    without = "\n".join(line for line in healthy.splitlines() if not line.strip().startswith("mig."))
    assert without != healthy
    found = ask(library, without, tmp_path)
    assert found["gpu.mig_mode"]["value"] == {f"gpu-{i}": False for i in range(8)}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((0, 1), False),
        ((1, 0), True),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, False),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, Unmeasurable),
        (pynvml.NVML_ERROR_UNKNOWN, RuntimeError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, RuntimeError),
        (pynvml.NVML_ERROR_NO_PERMISSION, RuntimeError),
        (pynvml.NVML_ERROR_UNINITIALIZED, RuntimeError),
    ],
)
def test_only_a_gpu_that_says_it_has_no_partitions_has_none(
    monkeypatch: pytest.MonkeyPatch, answer: Any, outcome: Any
) -> None:
    """One GPU of two that cannot tell is enough: the other one's word is not taken for it."""

    def mode(index: int) -> tuple[int, int]:
        if index == 0 or isinstance(answer, tuple):
            return answer if index else (0, 0)
        raise pynvml.NVMLError(answer)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", mode)
    if isinstance(outcome, bool):
        assert mig_mode(Nvml()) == {"gpu-0": False, "gpu-1": outcome}
    else:
        with pytest.raises(outcome):
            mig_mode(Nvml())


def test_gpus_that_the_spec_expects_and_nobody_sees_leave_the_identity_unknown(tmp_path: Path) -> None:
    told, _ = run({"node": "a", "expectations": {"gpu.count": 8}, "options": {"only": ["cpu.count"]}})
    assert told.header
    assert told.header["identity"]["gpus"] is None
    told, _ = run({"node": "a", "options": {"only": ["cpu.count"]}})
    assert told.header
    assert told.header["identity"]["gpus"] == []


def test_throttle_reasons_by_name() -> None:
    assert throttles(0) == []
    assert throttles(0x001 | 0x002) == [], "idle and chosen clocks are no fault"
    assert throttles(0x008 | 0x040) == ["hw_slowdown", "hw_thermal_slowdown"]
    assert throttles(1 << 20) == ["unknown 0x100000"]
