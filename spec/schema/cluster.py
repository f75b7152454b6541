"""The cluster spec as a whole: what `clusters/X.yaml` declares."""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from spec.schema.base import Declared, Name, PortRange
from spec.schema.contradictions import contradictions
from spec.schema.facility import Facility
from spec.schema.filesystem import Filesystem
from spec.schema.networks import Networks
from spec.schema.nodes import NodeGroup, Role


class Substrate(StrEnum):
    """What stands the cluster up."""

    LAB = "lab"
    STATIC = "static"


class Time(Declared):
    """Where the control nodes get their time, and how far any node's clock may be off."""

    sources: tuple[str, ...] = ()
    """NTP servers of the site; none means that the first control node's own clock is the cluster's time."""
    limit_ms: Annotated[float, Field(gt=0, le=1000)] = 100


class Site(Declared):
    """What the cluster finds around it."""

    domain: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] = "cluster.internal"
    time: Time = Time()
    dns: tuple[str, ...] = ()
    administrators: tuple[IPv4Network, ...] = ()
    """CIDRs from which administrators log in, besides the management network."""
    users: tuple[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")], ...] = ()
    """People who may log in to every node by key, besides the automation user; none of them becomes root."""


class Scheduler(StrEnum):
    """What hands nodes to jobs."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class Pool(Declared):
    """The scheduler and its queue."""

    scheduler: Scheduler = Scheduler.SLURM
    queue: Name = "train"
    srun_ports: PortRange = PortRange("61001-62000")
    """TCP ports on which Slurm's srun and salloc listen for their job's nodes: none of the jobs' own, nor of those that
    the kernel gives to outgoing connections."""


class CertificatePolicy(Declared):
    """How long a node's certificate lasts."""

    lifetime: Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=90))] = timedelta(days=7)


class Exemption(Declared):
    """A control that this cluster is excused from, why, and until when. The real result is kept."""

    id: Name
    control: str
    nodes: tuple[str, ...] = ()
    """Names of nodes; none means all."""
    reason: Annotated[str, Field(min_length=10)]
    approved_by: Annotated[str, Field(min_length=1)]
    expires: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(Z|[+-]\d{2}:\d{2})$")]
    """An instant with its zone, as in 2026-12-24T12:00:00Z."""


class DesignException(Declared):
    """A proof that this design knowingly fails, and why. It is shown as failed, with the reason."""

    proof: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)+$", max_length=60)]
    reason: Annotated[str, Field(min_length=10, max_length=500)]


class Cluster(Declared):
    """One cluster."""

    api_version: Annotated[Literal["muster/v1"], Field(alias="apiVersion")]
    name: Name
    substrate: Substrate
    site: Site = Site()
    networks: Networks
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    filesystem: Filesystem
    facility: Facility
    pool: Pool = Pool()
    pins: Name
    """The pin set, a file of that name in policies/pins/."""
    certificate: CertificatePolicy = CertificatePolicy()
    waivers: tuple[Exemption, ...] = ()
    exceptions: tuple[DesignException, ...] = ()

    def groups(self, role: Role) -> Iterator[NodeGroup]:
        """The node groups that have a role, in the spec's order."""
        return (group for group in self.nodes if role in group.roles)

    @model_validator(mode="after")
    def _contradicts_itself_nowhere(self) -> Self:
        found = contradictions(self)
        if found:
            raise PydanticCustomError(
                "contradiction", "{text}", {"text": "; ".join(str(each) for each in found), "found": found}
            )
        return self
