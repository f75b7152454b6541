"""Ports that two programs cannot both have."""

from itertools import combinations

from spec.plan import ClusterPlan, FirewallRule, Node, firewall
from spec.proofs.proof import Proof
from spec.schema import Role
from spec.schema.base import PortRange

UNPRIVILEGED = 1024
"""The first port that a program without privileges may listen on."""

EPHEMERAL = PortRange("32768-60999")
"""Where Linux takes the ports of outgoing connections from, unless it is told another range (kernel documentation,
ip_local_port_range). On compute nodes it is told the jobs' range."""


def services(plan: ClusterPlan) -> Proof:
    """Whether every port of a node is one service's.

    Services listen on all addresses, so that two clash though the firewall opens them on different interfaces. srun is
    a user's program, so it can listen on no privileged port.
    """
    srun = plan.spec.pool.srun_ports
    clash, most = "", 0
    for node, rules in _services(plan):
        most = max(most, len(rules))
        for one, other in combinations(rules, 2):
            if one.purpose != other.purpose and _same(one, other):
                clash = clash or f"{one.purpose} and {other.purpose} on {node.name} share a port"
        if any(rule.purpose == "srun" for rule in rules) and srun.first < UNPRIVILEGED:
            clash = clash or f"srun on {node.name} has no privileges, and ports below {UNPRIVILEGED} need them"
    return Proof(
        id="ports.services",
        title="Every port of a node is one service's",
        holds=not clash,
        numbers={"srun_ports": str(srun), "services": most},
        message=clash or "no two services of a node share a port",
        advice="give srun a range that no service has, as in 61001-62000",
        fields=("pool.srun_ports", *_fields(plan)),
    )


def jobs(plan: ClusterPlan) -> Proof:
    """Whether the jobs' ports are theirs alone.

    They are the ephemeral ports of compute nodes too, so that a service among them may find its port taken.
    """
    wanted = plan.spec.networks.fabric.job_ports
    clash = f"ports below {UNPRIVILEGED} are for privileged programs" if wanted.first < UNPRIVILEGED else ""
    for node, rules in _services(plan):
        clash = clash or _taken(node, rules, wanted)
    return Proof(
        id="ports.jobs",
        title="No service has one of the jobs' ports",
        holds=not clash,
        numbers={"job_ports": str(wanted), "ports": len(wanted)},
        message=f"{wanted}, but {clash}" if clash else f"{wanted} are the jobs' alone",
        advice="use a range that no service has, as in 50000-51000",
        fields=("networks.fabric.job_ports", "pool.srun_ports", *_fields(plan)),
    )


def ephemeral(plan: ClusterPlan) -> Proof:
    """Whether a service has a port that the kernel may have given to an outgoing connection.

    Asked of nodes that run no jobs; on those that do, the ephemeral ports are the jobs'.
    """
    clash = ""
    for node, rules in _services(plan):
        if not node.has(Role.COMPUTE):
            clash = clash or _taken(node, rules, EPHEMERAL)
    return Proof(
        id="ports.ephemeral",
        title="No service has a port that the kernel gives to outgoing connections",
        holds=not clash,
        numbers={"ephemeral": str(EPHEMERAL), "srun_ports": str(plan.spec.pool.srun_ports)},
        message=f"{clash}, and the kernel gives out {EPHEMERAL} there" if clash else f"none has one of {EPHEMERAL}",
        advice=f"use a range above {EPHEMERAL.last}, as in 61001-62000",
        fields=("pool.srun_ports", *_fields(plan)),
    )


def _services(plan: ClusterPlan) -> list[tuple[Node, list[FirewallRule]]]:
    """A node of each kind, with the rules of what listens on it besides jobs."""
    kinds = {(node.roles, node.machine): node for node in plan.nodes}
    return [
        (node, [rule for rule in firewall(plan, node) if rule.ports and rule.purpose != "jobs"])
        for node in kinds.values()
    ]


def _taken(node: Node, rules: list[FirewallRule], ports: PortRange) -> str:
    """Which service of a node has some of these ports, in words; empty where none has."""
    rule = next((rule for rule in rules if any(ports.overlaps(each) for each in rule.ports)), None)
    return f"{rule.purpose} on {node.name} has {', '.join(rule.ports)}" if rule else ""


def _same(one: FirewallRule, other: FirewallRule) -> bool:
    return one.protocol == other.protocol and any(a.overlaps(b) for a in one.ports for b in other.ports)


def _fields(plan: ClusterPlan) -> tuple[str, ...]:
    """What decides which services a node has."""
    return ("pool.scheduler", *(f"nodes[{i}].roles" for i in range(len(plan.spec.nodes))))


PROOFS = (services, jobs, ephemeral)
