"""Published runs, read from `tests/spec/published`."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from spec.workload.compute import compute
from spec.workload.gpus import gpu
from spec.workload.hardware import Hardware
from spec.workload.job import Job, job
from spec.workload.layout import Layout
from spec.workload.model import Model
from spec.workload.timing import step
from spec.workload.training import Training

FOLDER = Path(__file__).parent / "published"


def read(name: str) -> dict[str, Any]:
    """One file of the folder."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


class Published(NamedTuple):
    """One run and what was measured of it."""

    name: str
    job: Job
    measured: dict[str, float]
    use: str

    @property
    def step_s(self) -> float:
        """The measured step, from whatever its authors print."""
        tokens, gpus = self.job.step_tokens, self.job.layout.trainers
        if "step_s" in self.measured:
            return self.measured["step_s"]
        if "tokens_per_gpu_s" in self.measured:
            return tokens / gpus / self.measured["tokens_per_gpu_s"]
        return self.job.model.flops_per_token * tokens / gpus / self.measured["tflops_per_gpu"] / 1e12


def machine(name: str, nodes: int) -> Hardware:
    """A published cluster. Storage and management are not part of these runs: any figure will do."""
    told = read("clusters.yaml")[name]
    chip = gpu(told["gpu"])
    return Hardware(
        name=name,
        gpu=chip,
        nodes=nodes,
        gpus_per_node=told["gpus_per_node"],
        nvlink_domain=told.get("nvlink_domain", told["gpus_per_node"]),
        nvlink=chip.nvlink,
        rails=told["rails"],
        rail=told["rail_gbps"] / 8,
        nodes_per_leaf=told.get("nodes_per_leaf", nodes),
        oversubscription=told.get("oversubscription", 1),
        storage=25,
        storage_read=1000,
        storage_write=333,
        management=3,
        management_all=100,
    )


def model(name: str) -> Model:
    """A published model."""
    return Model(name=name, **read("models.yaml")[name]["shape"])


def published() -> list[Published]:
    """All of them."""
    return [_run(name, told) for name, told in read("runs.yaml").items()]


def _run(name: str, told: dict[str, Any]) -> Published:
    layout = Layout(name=name, **told["layout"])
    nodes = -(-layout.gpus // read("clusters.yaml")[told["cluster"]]["gpus_per_node"])
    training = Training(**told["training"])
    if by := told.get("measured_by"):
        training = training.model_copy(update={"achieved_flops": _achieved(by), "achieved_source": by})
    made = job(model(told["model"]), layout, training, machine(told["cluster"], nodes))
    return Published(name, made, told["measured"], told["use"])


def _achieved(name: str) -> float:
    """FLOP/s at which a published run's kernels must have run, its communication left out."""
    run = _run(name, read("runs.yaml")[name])
    taken = step(run.job)
    computing = run.step_s - taken.waiting - taken.update - taken.bubble
    unit = run.job.training.model_copy(update={"achieved_flops": 1e12, "achieved_source": "a unit"})
    return 1e12 * compute(run.job._replace(training=unit)).microbatch * run.job.microbatches / computing
