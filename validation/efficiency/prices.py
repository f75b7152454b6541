"""What a GPU-hour costs: by partition, by model, or one price for all."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from validation.efficiency.accounting import Job

Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Prices(BaseModel):
    """A file of prices, or what the command line says. The most exact one holds: partition, then model, then all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = Field(default="", max_length=8)
    gpu_hour: Price | None = None
    """Of any other GPU."""
    partitions: dict[str, Price] = Field(default_factory=dict)
    models: dict[str, Price] = Field(default_factory=dict)
    """By the name in the scheduler's `gres/gpu:NAME`."""

    @property
    def given(self) -> bool:
        """Whether there is any price."""
        return self.gpu_hour is not None or bool(self.partitions) or bool(self.models)

    def hour(self, job: Job) -> float | None:
        """What an hour of all of a job's GPUs costs; None where one of them has no price."""
        each = {model: self.partitions.get(job.partition, self.models.get(model, self.gpu_hour)) for model in job.gpus}
        known = {model: price for model, price in each.items() if price is not None}
        return sum(job.gpus[model] * price for model, price in known.items()) if len(known) == len(each) else None
