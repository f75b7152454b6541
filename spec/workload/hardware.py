"""What a workload has to run on: the numbers of a cluster that matter to it."""

from math import ceil
from typing import Annotated

from pydantic import Field

from spec.plan.model import ClusterPlan
from spec.plan.thresholds import COLLECTIVE, TCP
from spec.schema import FabricKind, Role
from spec.schema.base import Declared, Text
from spec.workload.curve import Curve
from spec.workload.figure import Impossible, WorkloadError
from spec.workload.gpus import Gpu, gpu

PCIE_GBS = 31.5
"""GPUs without NVLink: 16 lanes of PCIe 4.0 in one direction (PCI-SIG)."""

Bandwidth = Annotated[float, Field(gt=0)]
"""GB/s, 10^9 bytes a second, in one direction."""


class Hardware(Declared):
    """A cluster's compute nodes, all alike, and the planes that join them."""

    name: Text = "cluster"
    gpu: Gpu
    nodes: Annotated[int, Field(ge=1)]
    gpus_per_node: Annotated[int, Field(ge=1)]
    nvlink_domain: Annotated[int, Field(ge=1)]
    """GPUs that NVLink joins: a node's, or a rack's (72 in NVL72)."""
    nvlink: Bandwidth
    """Of one GPU."""
    rails: Annotated[int, Field(ge=1)]
    rail: Bandwidth
    """Of one rail of one node."""
    nodes_per_leaf: Annotated[int, Field(ge=1)]
    oversubscription: Annotated[float, Field(ge=1)] = 1
    """Of the leaves towards the spines."""
    reach: Annotated[float, Field(gt=0, le=1)] = COLLECTIVE
    """The part of the rails' rate that collectives reach on large messages."""
    storage: Bandwidth
    """Of one node's storage ports."""
    storage_read: Bandwidth
    """Of the filesystem's servers and switches together."""
    storage_write: Bandwidth
    """The same for writes: every copy crosses the servers' ports."""
    management: Bandwidth
    """Of one node's management ports."""
    management_all: Bandwidth
    """Of the management switches together."""
    in_node: Curve | None = None
    """Measured in one node."""
    between: Curve | None = None
    """Measured between nodes, all GPUs of each taking part."""

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node

    @property
    def island(self) -> int:
        """GPUs that reach each other without the fabric."""
        return max(self.gpus_per_node, self.nvlink_domain)

    @property
    def fabric(self) -> float:
        """GB/s of the fabric for each GPU, as its links are sold."""
        return self.rails * self.rail / self.gpus_per_node


def hardware(plan: ClusterPlan, group: str | None = None, chip: Gpu | None = None) -> Hardware:
    """The hardware of a cluster's compute nodes.

    Args: the plan; the node group, where several have GPUs; the GPU, where the catalogue does not have it.
    Raises WorkloadError where no group has GPUs, where several do and none is named, where the GPU is unknown, or
    where leaves are joined by nothing.
    """
    groups = [each for each in plan.spec.groups(Role.COMPUTE) if each.gpus and group in (None, each.name)]
    if len(groups) != 1:
        names = ", ".join(each.name for each in plan.spec.nodes if each.gpus) or "none"
        problem = f"{plan.name} has {'no' if not groups else 'several'} group{'s' * (len(groups) > 1)} of GPU nodes"
        raise WorkloadError(
            [
                Impossible(
                    field="hardware.group",
                    problem=f"{problem}{f' named {group!r}' if group else ''}",
                    advice=f"name one group with GPUs; there are: {names}",
                )
            ]
        )
    chosen = groups[0]
    gpus = chosen.gpus
    if gpus is None:  # never: the groups above have some
        raise AssertionError(chosen.name)
    model = (chip or gpu(gpus.model)).model_copy(update={"memory_gib": float(gpus.memory_gib)})
    networks, switches = plan.spec.networks, plan.switches
    if switches.oversubscription == float("inf"):
        raise WorkloadError(
            [
                Impossible(
                    field="networks.fabric.uplinks",
                    problem=f"{plan.name} has leaves without uplinks, so that no job can span them",
                    advice="give the leaves uplinks and spines, or each rail one leaf",
                )
            ]
        )
    tcp = networks.fabric.kind is FabricKind.TCP
    servers = len(plan.with_role(Role.STORAGE))
    port = networks.storage.link_gbps / 8
    # Every byte between a client and a server may cross the uplinks of the switches between them.
    uplinks = networks.storage.uplink_gbps
    crossing = uplinks * networks.storage.switches / 8 if uplinks and networks.storage.switches > 1 else float("inf")
    served = min(servers * port * networks.storage.bond.links, crossing)
    management = networks.management.link_gbps / 8
    joined = gpus.nvlink_gbps / 8 if gpus.nvlink_gbps else model.nvlink
    nvlink = joined if gpus.nvlinks or gpus.nvlink_gbps else 0.0
    return Hardware(
        name=plan.name,
        gpu=model,
        nodes=chosen.count,
        gpus_per_node=gpus.count,
        nvlink_domain=gpus.count,
        nvlink=nvlink or PCIE_GBS,
        rails=networks.fabric.rails,
        rail=networks.fabric.link_gbps / 8,
        nodes_per_leaf=max(1, ceil(chosen.count / switches.blocks)),
        oversubscription=max(1.0, switches.oversubscription),
        reach=networks.fabric.floor_fraction or (TCP if tcp else COLLECTIVE),
        storage=port * networks.storage.bond.links,
        storage_read=served,
        storage_write=served / plan.spec.filesystem.replicas,
        management=management,
        management_all=management * networks.management.switches * networks.management.switch_ports,
    )
