"""How far the planner's figures may be off: what the published runs in `tests/spec/published` show, rounded up."""

from spec.workload.job import Job

DENSE = 0.25
"""Step time, dense models: 41 published runs differ by 23 % at most, by 6 % in the median."""
EXPERTS = 0.40
"""The same with experts: 4 published runs differ by 34 % at most."""
MEASURED = 0.15
"""The same where the kernels' speed was measured (`training.achieved_flops`)."""
MEMORY = 0.30
"""Memory: frameworks free, fuse and fragment differently. Every published run would fit within it; the one whose
authors print its memory (BLOOM) differs by 23 %."""
FAILURES = 0.75
"""Rates differ between sites by age and make: 2.0 and 3.4 × 10⁻⁵ a GPU and hour in the two that are published. Small
jobs can be further off: one of 1,024 GPUs on RSC-1 was interrupted every 7.9 h, where its cluster's rate gives 29."""


def step_error(job: Job) -> float:
    """Of the step time."""
    if job.training.achieved_flops:
        return MEASURED
    return EXPERTS if job.model.experts else DENSE


def inverse(error: float) -> float:
    """The error of what falls as the step time rises: a step a quarter shorter is a third more tokens."""
    return error / (1 - error)
