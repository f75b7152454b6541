"""Ports that two programs cannot both have."""

from itertools import combinations

from spec.plan import ClusterPlan, FirewallRule, firewall
from spec.proofs.proof import Proof

UNPRIVILEGED = 1024
"""The first port that a program without privileges may listen on."""


def jobs(plan: ClusterPlan) -> Proof:
    """Whether every port of a node belongs to one service, and none to jobs, whose ports are the ephemeral ones too.

    Services listen on all addresses, so that two clash though the firewall opens them on different interfaces.
    """
    wanted = plan.spec.networks.fabric.job_ports
    low = wanted.first < UNPRIVILEGED
    clash = "" if not low else f"ports below {UNPRIVILEGED} are for privileged programs"
    kinds = {node.roles: node for node in plan.nodes}
    services = 0
    for node in kinds.values():
        rules = [rule for rule in firewall(plan, node) if rule.ports and rule.purpose != "jobs"]
        services = max(services, len(rules))
        taken = next((rule for rule in rules if any(wanted.overlaps(port) for port in rule.ports)), None)
        if taken:
            clash = f"{taken.purpose} on {node.name} has port {', '.join(taken.ports)}"
        for one, other in combinations(rules, 2):
            if one.purpose != other.purpose and _same(one, other):
                clash = f"{one.purpose} and {other.purpose} on {node.name} share a port"
    return Proof(
        id="ports.jobs",
        title="Every port is one service's, and none of them a job's",
        holds=not clash,
        numbers={"job_ports": str(wanted), "ports": len(wanted), "services": services},
        message=f"{wanted}, but {clash}" if clash else f"{wanted} are the jobs' alone",
        advice="use a range that no service has, as in 50000-51000",
        fields=(
            "networks.fabric.job_ports",
            "pool.scheduler",
            *(f"nodes[{i}].roles" for i in range(len(plan.spec.nodes))),
        ),
    )


def _same(one: FirewallRule, other: FirewallRule) -> bool:
    return one.protocol == other.protocol and any(a.overlaps(b) for a in one.ports for b in other.ports)


PROOFS = (jobs,)
