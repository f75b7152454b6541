"""Nodes for everything that a cluster needs done."""

from spec.plan import ClusterPlan
from spec.proofs.proof import Proof
from spec.schema import Role


def present(plan: ClusterPlan) -> Proof:
    """Whether there is a node for each role."""
    counts = {role.value: len(plan.with_role(role)) for role in Role}
    missing = [role for role, count in counts.items() if not count]
    return Proof(
        id="nodes.roles",
        title="There is a node for each role",
        holds=not missing,
        numbers={**counts},
        message=f"no node has the role {missing[0]}" if missing else f"{len(plan.nodes)} nodes for every role",
        advice="give a node group the role; a node may have several",
        fields=("nodes", *(f"nodes[{i}].{key}" for i in range(len(plan.spec.nodes)) for key in ("roles", "count"))),
    )


def gpus(plan: ClusterPlan) -> Proof:
    """Whether compute nodes, and only they, have GPUs."""
    wrong = [i for i, group in enumerate(plan.spec.nodes) if (group.gpus is None) == (Role.COMPUTE in group.roles)]
    blamed = wrong[0] if wrong else 0
    group = plan.spec.nodes[blamed]
    every = [f"nodes[{i}].{key}" for i in (blamed, *range(len(plan.spec.nodes))) for key in ("gpus", "roles")]
    odd = "GPUs, but not the role compute" if group.gpus else "the role compute, but no GPUs"
    return Proof(
        id="nodes.gpus",
        title="Compute nodes have GPUs, and only they",
        holds=not wrong,
        numbers={"groups_wrong": len(wrong)},
        message=f"{group.name} has {odd}" if wrong else "every group agrees",
        advice="a node is examined, certified and used for its GPUs where its role is compute",
        fields=tuple(dict.fromkeys(every)),
    )


PROOFS = (present, gpus)
