"""A cluster that stands: what every substrate exports as its one output, `cluster`.

Everything downstream (examination, pool, drift) works from this and the plan; nothing asks which substrate it was.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from spec.schema import Substrate

ImageDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of an image's recipe, hexadecimal."""


class CertificateClass(StrEnum):
    """What a certificate from this deployment is worth."""

    LAB = "lab"
    """Simulated or emulated hardware: proves the procedure, never the hardware."""
    PRODUCTION = "production"


class Deployment(BaseModel):
    """Where a standing cluster is and how it is reached.

    Paths are absolute and on the machine that ran `pulumi up`. Nodes are reached by OpenSSH as
    `ssh -F SSH_CONFIG NODE`, which knows users, keys, host keys and proxies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal["muster/deployment/v1"] = "muster/deployment/v1"
    name: str
    stack: str
    substrate: Substrate
    certificate_class: CertificateClass
    spec: Path
    spec_digest: str
    """Of the spec that was deployed: a spec edited since has another one."""
    state: Path
    """The stack's folder for keys and sockets, mode 0700."""
    ssh_config: Path
    nodes: tuple[str, ...]
    images: dict[str, ImageDigest] = {}
    """The image that each node was made from, by node. A node that Muster did not make is not in it."""
    simulated: tuple[str, ...] = ()
    """What is not real, in words for people: `GPUs are simulated`, `rails carry TCP`."""
