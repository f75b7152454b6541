"""The parallel filesystem."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from spec.schema.base import Declared, Name


class FailureDomain(StrEnum):
    """What copies of the same data never share."""

    HOST = "host"
    RACK = "rack"
    PDU = "pdu"


class MetadataServers(Declared):
    """Metadata servers: those that serve, and those that wait to take over."""

    active: Annotated[int, Field(ge=1, le=16)] = 1
    standby: Annotated[int, Field(ge=0, le=16)] = 1


class Filesystem(Declared):
    """A CephFS filesystem on the storage nodes, mounted by compute nodes."""

    kind: Literal["cephfs"] = "cephfs"
    name: Name = "scratch"
    mount: Annotated[str, Field(pattern=r"^/[a-z0-9/_-]+$")] = "/scratch"
    replicas: Annotated[int, Field(ge=1, le=5)] = 3
    failure_domain: FailureDomain = FailureDomain.HOST
    monitors: Annotated[int, Field(ge=1, le=9)] = 3
    metadata_servers: MetadataServers = MetadataServers()
    osds_per_node: Annotated[int, Field(ge=1)] = 1
    osd_gib: Annotated[float, Field(gt=0)]
    """Size of each disk, GiB, before copies."""
    mtu: Annotated[int, Field(ge=1280, le=9216)] | None = None
    """The MTU that the filesystem is tuned for; by default the storage plane's."""
    checkpoints: Annotated[int, Field(ge=0)] = 3
    """How many checkpoints of `checkpoint_gib` must fit at once."""
    checkpoint_gib: Annotated[float, Field(ge=0)] = 0
    free_percent: Annotated[float, Field(ge=0, le=100)] = 10
    """Room that a healthy filesystem keeps."""

    @property
    def least_copies(self) -> int:
        """Copies without which data is not served (Ceph's min_size): a majority, so that no two halves both write."""
        return self.replicas // 2 + 1
