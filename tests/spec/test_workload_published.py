"""The planner against what others measured, within the error that it states itself."""

import pytest
from published_runs import Published, machine, model, published, read

from spec.workload import Layout, Training, plan
from spec.workload.bands import DENSE, EXPERTS, MEMORY
from spec.workload.timing import mfu, step

RUNS = published()
PLANNED = [run for run in RUNS if run.use != "measure"]


@pytest.mark.parametrize("run", PLANNED, ids=lambda run: run.name)
def test_a_published_step_is_within_the_error_that_the_plan_states(run: Published) -> None:
    made = run.job
    planned = plan(made.model, made.layout, made.training, made.hardware).step.seconds
    assert abs(run.step_s - planned.value) <= planned.error * planned.value, (
        f"measured {run.step_s:.2f} s, planned {planned.value:.2f} s ± {planned.error:.0%}"
    )


@pytest.mark.parametrize("run", [run for run in RUNS if "mfu" in run.measured], ids=lambda run: run.name)
def test_utilisation_is_counted_as_its_authors_count_it(run: Published) -> None:
    """From the measured step: no model of ours is in it but the count of FLOPs and the GPU's peak."""
    if "tflops_per_gpu" in run.measured:
        peak = run.job.hardware.gpu.peak(run.job.training.precision)
        counted = run.measured["tflops_per_gpu"] * 1e12 / peak
    else:
        taken = step(run.job)
        counted = mfu(run.job, taken) * taken.seconds / run.step_s
    # MFU is printed with two or three digits, MegaScale's figures differ among themselves by 4 %.
    assert counted == pytest.approx(run.measured["mfu"], rel=0.05)


def test_the_error_is_not_made_by_one_family_and_does_not_lean() -> None:
    """Half of the published steps are within a third of the stated error, and the plan is not always too fast."""
    off = {run.name: run.step_s / step(run.job).seconds - 1 for run in PLANNED}
    dense = [abs(off[run.name]) for run in PLANNED if not run.job.model.experts]
    assert sorted(dense)[len(dense) // 2] <= DENSE / 3
    assert 0.25 <= sum(each > 0 for each in off.values()) / len(off) <= 0.75


def test_hiding_communication_gains_what_was_measured() -> None:
    """MegaScale: 53.3 % MFU before tensor, pipeline and data overlap, 59.5 % after (arXiv:2402.15627, table 3).

    175 billion parameters, 256 GPUs, batch 256. What hiding gains is the share of communication that was exposed.
    """

    def planned(**overlap: bool) -> float:
        layout = Layout(tensor=8, pipeline=8, virtual=6, data=4, **overlap)
        made = plan(model("megascale-175b"), layout, Training(global_batch=256), machine("megascale", 32))
        return made.step.seconds.value

    exposed = planned(tensor_overlap=False, pipeline_overlap=False, data_overlap=False)
    hidden = planned(tensor_overlap=True, pipeline_overlap=True, data_overlap=True)
    assert exposed / hidden - 1 == pytest.approx(59.5 / 53.3 - 1, rel=DENSE)


def test_there_are_at_least_eight_published_runs_that_nothing_was_fitted_to() -> None:
    assert len({run.job.model.name for run in RUNS}) >= 8
    assert sum(run.use == "check" for run in RUNS) >= 20
    assert any(run.use == "check" and run.job.model.experts for run in RUNS)
    assert DENSE < EXPERTS < 0.5


@pytest.mark.parametrize("name", ["runs.yaml", "models.yaml", "clusters.yaml"])
def test_everything_published_has_its_source(name: str) -> None:
    for what, told in read(name).items():
        assert any(mark in told["source"] for mark in ("arXiv:", "/", "data sheet")), what


@pytest.mark.parametrize("name", read("models.yaml"))
def test_parameters_follow_from_the_shape(name: str) -> None:
    told = read("models.yaml")[name]
    assert model(name).total_parameters == pytest.approx(told["parameters"], rel=0.01)


def test_active_parameters_of_experts() -> None:
    """Qwen3-235B-A22B: 22 billion of 235 (arXiv:2505.09388)."""
    shape = model("qwen3-235b")
    assert shape.matrix_parameters + shape.head_parameters == pytest.approx(22e9, rel=0.02)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_was_run_would_fit(run: Published) -> None:
    made = run.job
    held = plan(made.model, made.layout, made.training, made.hardware).memory
    room = 96 if run.name.startswith("torchtitan") else held.available.value  # HBM2e boards of 96 GB
    assert held.all.value * (1 - held.all.error) <= room
    if told := run.measured.get("memory_gib"):
        assert abs(told - held.all.value) <= held.all.error * held.all.value
    assert held.all.error == MEMORY


def test_a_layout_that_cannot_have_been_run_does_not_fit() -> None:
    """175 billion parameters on 8 GPUs of 80 GB: weights alone are 350 GB, with gradients and optimizer 2.8 TB."""
    made = next(run.job for run in RUNS if run.name == "gpt-175b-selective")
    tight = Layout(tensor=8, zero=0)
    held = plan(made.model, tight, made.training, machine("selene", 1)).memory
    assert not held.fits
    assert held.all.value * (1 - held.all.error) > held.available.value
