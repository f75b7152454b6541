"""The GPU measures and the NCCL job on this machine's own GPUs. Skipped, and listed at the end of the run, elsewhere.

`nvidia-smi` is the witness: it asks the same driver, but by itself. torch is that of the Python that runs the tests.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from suite_shapes import SHAPES, fits
from test_suite_session import run

from policies.fabric import REPEATS
from validation.fabric.run import stand_ins
from validation.nccl.launch import MIB, OPS, start
from validation.nccl.sweep import Asked, End, Start, Stream, Timing, records, sweeps
from validation.node.stream import Stream as Told
from validation.transport import Local

pytestmark = pytest.mark.gpu

GPU = re.compile(r"^GPU \d+: (?P<model>.+) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)$", re.MULTILINE)
"""A line of `nvidia-smi -L`; a partition of a GPU has an indented one of its own."""

ALWAYS = {"gpu.count", "gpu.model", "gpu.driver_version", "gpu.cuda_version", "gpu.memory_gib"}
"""Measures that every NVIDIA GPU answers; others may not be supported."""

SIZES = (MIB, 16 * MIB, 64 * MIB)
LIMIT_S = 240.0

TORCH = """
import torch
print(torch.cuda.device_count() if torch.cuda.is_available() and torch.distributed.is_nccl_available() else 0)
"""


@dataclass(frozen=True)
class Seen:
    """What `nvidia-smi` sees, in its order."""

    models: tuple[str, ...]
    uuids: tuple[str, ...]
    driver: str


@pytest.fixture(scope="module")
def smi() -> Seen:
    """Skips where there is no NVIDIA GPU, in nvidia-smi's words."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("no NVIDIA GPU: nvidia-smi is not installed")
    found = [match.groupdict() for match in GPU.finditer(listed.stdout)]
    if not found:
        pytest.skip(f"no NVIDIA GPU: nvidia-smi says {(listed.stdout + listed.stderr).strip()[:300] or 'nothing'}")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = (
        subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()[0].strip()
    )
    return Seen(tuple(each["model"] for each in found), tuple(each["uuid"] for each in found), driver)


@pytest.fixture(scope="module")
def told(smi: Seen) -> Told:
    """The node suite's own file, asked for everything about GPUs."""
    only = [name for name in SHAPES if name.startswith("gpu.")]
    found, done = run({"node": "here", "expectations": {"gpu.count": len(smi.uuids)}, "options": {"only": only}})
    assert found.fault is None, done.stderr.decode()
    assert [each["measure"] for each in found.measurements] == only
    return found


def test_every_measure_answers_for_every_gpu_or_says_why_it_cannot(smi: Seen, told: Told) -> None:
    names = [f"gpu-{index}" for index in range(len(smi.uuids))]
    for each in told.measurements:
        name = each["measure"]
        assert each["outcome"] in ("measured", "unmeasurable"), (name, each.get("reason"))
        if each["outcome"] == "unmeasurable":
            assert each["reason"], name
            assert name not in ALWAYS, (name, each["reason"])
        else:
            assert fits(each["value"], SHAPES[name]), (name, each["value"])
            assert each["per"] != "gpu" or list(each["value"]) == names, (name, each["value"])


def test_the_gpus_are_those_that_nvidia_smi_sees(smi: Seen, told: Told) -> None:
    values = {each["measure"]: each.get("value") for each in told.measurements}
    assert values["gpu.count"] == len(smi.uuids)
    assert tuple(values["gpu.model"].values()) == smi.models
    assert values["gpu.driver_version"] == smi.driver
    assert told.header
    assert tuple(told.header["identity"]["gpus"]) == smi.uuids


def test_nothing_about_real_gpus_says_that_it_is_simulated(told: Told) -> None:
    for each in told.measurements:
        assert each["simulated"] is False, each
        assert re.fullmatch(r"NVML [\d.]+", each["source"] or ""), each


@pytest.fixture(scope="module")
def job(smi: Seen) -> list[Stream]:
    """What the NCCL job's ranks said, one on each GPU. Skips where this Python's torch cannot use them."""
    asked = subprocess.run(
        [sys.executable, "-I", "-c", TORCH], capture_output=True, text=True, timeout=120, check=False
    )
    if "No module named 'torch'" in asked.stderr:
        pytest.skip(f"torch is not installed for {sys.executable}")
    assert asked.returncode == 0, asked.stderr
    ranks = int(asked.stdout)
    if not ranks:
        pytest.skip(f"torch of {sys.executable} has no CUDA or no NCCL, or may not use the {len(smi.uuids)} GPUs here")
    return asyncio.run(collectives("nccl", ranks))


async def collectives(backend: str, ranks: int) -> list[Stream]:
    """Runs the job as it runs on nodes, with all ranks on this machine, by the Python that runs the tests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    work = {"backend": backend, "ops": OPS, "sizes": SIZES, "repeats": REPEATS, "calls": 5, "limit_s": LIMIT_S / 2}
    variables = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "MUSTER_WORK": json.dumps(work),
    }
    return await start(Local(), [("here", local) for local in range(ranks)], variables, LIMIT_S)


def whole(said: list[Stream]) -> list[Timing]:
    """All timings of a job that every rank began and ended, each of an exact result."""
    timings = []
    for stream in said:
        found, problems = records(stream)
        assert not problems
        assert isinstance(found[-1], End)
        timings += [each for each in found if isinstance(each, Timing)]
    assert len(timings) == len(OPS) * len(SIZES) * REPEATS
    assert {each.op for each in timings} == set(OPS)
    assert sum(each.wrong for each in timings) == 0
    return timings


@pytest.mark.timeout(600)
def test_collectives_over_all_gpus_are_nccls_and_exact(job: list[Stream]) -> None:
    whole(job)
    starts = [each for stream in job for each in records(stream)[0] if isinstance(each, Start)]
    assert [each.rank for each in starts] == list(range(len(job)))
    for each in starts:
        assert (each.backend, each.device, each.ranks) == ("nccl", "cuda", len(job))
        assert each.nccl
        assert not stand_ins(each.backend)


@pytest.mark.timeout(600)
def test_several_gpus_move_data_and_a_single_one_is_given_no_bandwidth(job: list[Stream]) -> None:
    asked = Asked(
        backend="nccl",
        ops=OPS,
        sizes=SIZES,
        repeats=REPEATS,
        rail=None,
        floors=dict.fromkeys(OPS, 1e-6),
        floor_source="anything at all",
        plateau_from=SIZES[-2],
    )
    for sweep in sweeps(asked, job):
        assert (sweep.backend, sweep.ranks) == ("nccl", len(job))
        if len(job) == 1:
            assert sweep.plateau is None
            assert sweep.faults
        else:
            assert sweep.faults == ()
            assert all(point.busbw > 0 for point in sweep.points)
