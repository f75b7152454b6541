"""What the telemetry of a job is told to do. Where nothing is set, events go to standard error and nowhere else."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is no http:// or https:// address")
    if "@" in value.split("/")[2]:
        raise ValueError("the address carries a name or password · give it through the environment, as the guide says")
    return value.rstrip("/")


Url = Annotated[str, AfterValidator(_url)]


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Console(StrEnum):
    """What standard error gets."""

    AUTO = "auto"
    """Lines for people on a terminal, JSON elsewhere."""
    HUMAN = "human"
    JSON = "json"
    OFF = "off"


class Log(Strict):
    """Log files, one a rank. The oldest is removed when there are more than `keep`."""

    max_bytes: int = Field(default=64 << 20, ge=1 << 12)
    keep: int = Field(default=3, ge=1, le=100)


class Scrape(Strict):
    """Each rank answers Prometheus on `port` + its local rank; 0 lets the system choose.

    Where telemetry has a folder, `targets/rank-N.json` in it says where, for Prometheus' file_sd_configs.
    """

    host: str = "0.0.0.0"  # noqa: S104 (Prometheus asks from another machine)
    port: int = Field(default=9464, ge=0, le=65535)


class Push(Strict):
    """Each rank pushes its metrics to a Pushgateway, where Prometheus cannot reach it."""

    url: Url
    every_s: float = Field(default=15.0, gt=0)
    timeout_s: float = Field(default=5.0, gt=0)


class Traces(Strict):
    """Steps as OpenTelemetry traces, by OTLP over gRPC.

    Headers with a token come from OTEL_EXPORTER_OTLP_HEADERS. A step whose alarm rings is exported whatever `share` is.
    """

    endpoint: Url
    share: float = Field(default=0.01, ge=0, le=1)
    timeout_s: float = Field(default=5.0, gt=0)


class Loki(Strict):
    """Events pushed to Loki, where no agent collects the log files.

    A tenant or token comes from LOKI_TENANT and LOKI_TOKEN in the environment.
    """

    url: Url
    timeout_s: float = Field(default=5.0, gt=0)


class Worth(Strict):
    """What turns rates into MFU and time into money.

    `flops_per_token` (or per sample) counts forward and backward: about 6 times the parameters for a dense transformer.
    `peak_flops` is one device's, of the number format that is trained in.
    """

    flops_per_token: float | None = Field(default=None, gt=0)
    flops_per_sample: float | None = Field(default=None, gt=0)
    peak_flops: float | None = Field(default=None, gt=0)
    cost_per_rank_hour: float = Field(default=0.0, ge=0)
    pause_costs: bool = True
    """Whether the time between two starts is paid for."""


class Alarms(Strict):
    """When a step leaves its own history. See runtime.telemetry.alarms."""

    window: int = Field(default=200, ge=10, le=10_000)
    least: int = Field(default=50, ge=10)
    deviations: float = Field(default=6.0, gt=0)
    share: float = Field(default=0.1, ge=0)
    persist: int = Field(default=5, ge=1)


class Wandb(Strict):
    """Weights & Biases. The key comes from WANDB_API_KEY."""

    project: str
    entity: str | None = None
    offline: bool = False


class TelemetryConfig(Strict):
    """The whole of it. `run` is the same on all ranks and in all attempts of one training run."""

    run: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    folder: Path | None = None
    """Where log files, the goodput journal and Prometheus' targets go; shared between attempts."""
    console: Console = Console.AUTO
    capture_logging: bool = True
    """Whether what libraries say through Python's logging, from warnings on, becomes events too."""
    log: Log = Log()
    scrape: Scrape | None = None
    push: Push | None = None
    traces: Traces | None = None
    loki: Loki | None = None
    hardware_every_s: float = Field(default=10.0, ge=0)
    """How often a node's leader measures its hardware; 0 never."""
    waits_every_s: float = Field(default=30.0, ge=0)
    """How often rank 0 is told what the others waited for the slowest; 0 never. The same on all ranks."""
    worth: Worth = Worth()
    alarms: Alarms | None = Alarms()
    tensorboard: Path | None = None
    wandb: Wandb | None = None
    queue: int = Field(default=8192, ge=16, le=1_000_000)
    """How many events or steps may wait for each receiver; more are dropped and counted."""
