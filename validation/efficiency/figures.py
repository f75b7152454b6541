"""The figures of `muster cost`. What was not measured is null, and never counted as zero."""

from pydantic import BaseModel, ConfigDict, Field

from validation.efficiency.history import Cause


class Figures(BaseModel):
    """Part of the report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Share(Figures):
    """GPU time that went into one cause."""

    gpu_hours: float | None = Field(description="null where it was not measured anywhere")
    measured_gpu_hours: float = Field(description="GPU time of the jobs in which it was measured")


class Sum(Figures):
    """Some jobs together, within the report's period."""

    jobs: int = Field(description="with GPUs")
    gpu_hours: float = Field(description="that the jobs held")
    causes: dict[Cause, Share] = Field(description="add up to gpu_hours; `unknown` is what no journal explains")
    queue_hours: float | None = Field(description="waits of the jobs that started in the period, added up")
    queue_measured_jobs: int
    broken_gpu_hours: float = Field(description="of jobs that the scheduler says failed, by memory or a node too")
    cost: float | None = Field(description="of the GPU time that has a price; null where none has")
    unpriced_gpu_hours: float
    useful_steps: float | None = Field(description="in their runs' history at its end; null without a journal")
    useful_steps_per_cost: float | None = Field(description="over the cost of just the jobs that have a journal")
    goodput: float | None = Field(description="useful share of the GPU time that journals explain")
    gpu_busy: float | None = Field(description="share of time with a kernel running, of rank 0's node, sampled (NVML)")
    gpu_busy_measured_gpu_hours: float
    communication: float | None = Field(description="share of rank 0's step time in communication it waited for")
    communication_measured_gpu_hours: float


class Slowest(Figures):
    """A node whose ranks the others waited for."""

    node: str
    ranks: list[int] = Field(description="for which a tenth of it or more was waited, most first")
    phases: list[str] = Field(description="in which they were slow, where that is known; `rest` is outside of all")
    gpu_hours: float = Field(description="that ranks waited for it")


class JobFigures(Sum):
    """One allocation."""

    id: str
    cluster: str
    user: str
    account: str
    partition: str
    name: str
    state: str
    gpus: dict[str, int] = Field(description='by model; "" where the scheduler does not say the model')
    start_s: int
    end_s: int | None = Field(description="null while it runs")
    run: str | None = Field(description="the journal that explains it")
    not_explained: str | None = Field(description="why no journal explains it")
    slowest: list[Slowest] = Field(description="whom its ranks waited for, most first; empty too where not measured")


class UserFigures(Sum):
    """All jobs of one user."""

    user: str


class WeekFigures(Sum):
    """One week, from Monday, in UTC."""

    week: str = Field(description="ISO year and week, as 2026-W48")
    begin_s: int


class Report(Figures):
    """All of it."""

    version: str = "muster/cost/v1"
    begin_s: int = Field(description="GPU time before it is left out")
    end_s: int = Field(description="and after it; what runs is counted up to here")
    currency: str
    total: Sum
    weeks: list[WeekFigures]
    users: list[UserFigures]
    jobs: list[JobFigures]
    without_gpus: int = Field(description="jobs that held none")
    not_started: int = Field(description="jobs that did not start, or not yet")
    problems: list[str] = Field(description="what was asked for and could not be counted")
