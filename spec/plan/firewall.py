"""What each node lets in: derived from its roles, so that a port is open exactly where something serves on it."""

from spec.plan.model import ClusterPlan, FirewallRule, Node
from spec.schema import MachineKind, Role, Scheduler
from spec.schema.base import PortRange

SSH = PortRange("22")
NTP = PortRange("123")
SLURMCTLD = PortRange("6817")
SLURMD = PortRange("6818")
ROCE = PortRange("4791")
"""RoCE v2 (IANA). Only Soft-RoCE's packets pass the host's firewall: those of hardware never reach its kernel."""
CEPH_MONITOR = PortRange("3300")
CEPH_DAEMONS = PortRange("6830-7300")
"""Monitors' second protocol, and the range of OSDs, managers and metadata servers (docs.ceph.com, network config).

Ceph's own range starts at 6800 and so takes Slurm's ports on a node that is both: the ceph role sets
`ms_bind_port_min` and `ms_bind_port_max` to this one.
"""


def firewall(plan: ClusterPlan, node: Node) -> tuple[FirewallRule, ...]:
    """The rules of one node, in the order in which they are written. Pure.

    Sources are whole planes, never single hosts, so that adding a node changes no other node's rules.
    """
    management = plan.subnet("management").network
    storage = plan.subnet("storage").network
    rules = [
        FirewallRule(
            purpose="administration",
            protocol="tcp",
            ports=(SSH,),
            interface="mgmt0",
            sources=(management, *plan.administrators),
        ),
        FirewallRule(purpose="reachability", protocol="icmp", sources=tuple(subnet.network for subnet in plan.subnets)),
    ]
    if node.has(Role.CONTROL):
        rules.append(
            FirewallRule(purpose="time", protocol="udp", ports=(NTP,), interface="mgmt0", sources=(management,))
        )
        if plan.spec.pool.scheduler is Scheduler.SLURM:
            rules.append(
                FirewallRule(
                    purpose="slurmctld", protocol="tcp", ports=(SLURMCTLD,), interface="mgmt0", sources=(management,)
                )
            )
    if node.has(Role.STORAGE):
        rules.append(
            FirewallRule(
                purpose="ceph",
                protocol="tcp",
                ports=(CEPH_MONITOR, CEPH_DAEMONS),
                interface="stor0",
                sources=(storage,),
            )
        )
    if node.has(Role.COMPUTE) and plan.spec.pool.scheduler is Scheduler.SLURM:
        rules.append(
            FirewallRule(purpose="slurmd", protocol="tcp", ports=(SLURMD,), interface="mgmt0", sources=(management,))
        )
    if (node.has(Role.CONTROL) or node.has(Role.COMPUTE)) and plan.spec.pool.scheduler is Scheduler.SLURM:
        rules.append(
            FirewallRule(
                purpose="srun",
                protocol="tcp",
                ports=(plan.spec.pool.srun_ports,),
                interface="mgmt0",
                sources=(management,),
            )
        )
    jobs = plan.spec.networks.fabric.job_ports
    for interface in node.interfaces:
        if interface.plane.startswith("rail-"):
            rules.append(
                FirewallRule(
                    purpose="jobs",
                    protocol="tcp",
                    ports=(jobs,),
                    interface=interface.name,
                    sources=(interface.address.network,),
                )
            )
        if interface.rdma and node.machine is MachineKind.VM:
            rules.append(
                FirewallRule(
                    purpose="soft-roce",
                    protocol="udp",
                    ports=(ROCE,),
                    interface=interface.name,
                    sources=(interface.address.network,),
                )
            )
    return tuple(rules)
