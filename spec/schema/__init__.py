"""What a person declares in `clusters/X.yaml`, as types."""

from spec.schema.cluster import (
    CertificatePolicy,
    Cluster,
    DesignException,
    Exemption,
    Pool,
    Scheduler,
    Site,
    Substrate,
    Time,
)
from spec.schema.facility import Facility, Pdu, Rack
from spec.schema.filesystem import FailureDomain, Filesystem, MetadataServers
from spec.schema.networks import Bond, BondMode, Fabric, FabricKind, Lossless, Networks, Plane
from spec.schema.nodes import Capability, Gpus, MachineKind, Nics, NodeGroup, Racking, Role

__all__ = [
    "Bond",
    "BondMode",
    "Capability",
    "CertificatePolicy",
    "Cluster",
    "DesignException",
    "Exemption",
    "Fabric",
    "FabricKind",
    "Facility",
    "FailureDomain",
    "Filesystem",
    "Gpus",
    "Lossless",
    "MachineKind",
    "MetadataServers",
    "Networks",
    "Nics",
    "NodeGroup",
    "Pdu",
    "Plane",
    "Pool",
    "Rack",
    "Racking",
    "Role",
    "Scheduler",
    "Site",
    "Substrate",
    "Time",
]
