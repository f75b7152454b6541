"""Networks that do not overlap, and have room."""

from itertools import combinations

from spec.plan import ClusterPlan
from spec.plan.addresses import FIRST_HOST
from spec.proofs.proof import Proof

_CIDR = ("networks.management.cidr", "networks.storage.cidr", "networks.fabric.cidr")


def disjoint(plan: ClusterPlan) -> Proof:
    """Whether the three planes' networks overlap; rails are parts of the fabric's and cannot."""
    networks = plan.spec.networks
    planes = dict(zip(_CIDR, (networks.management.cidr, networks.storage.cidr, networks.fabric.cidr), strict=True))
    clash = next(((a, b) for a, b in combinations(planes, 2) if planes[a].overlaps(planes[b])), None)
    blamed = (*reversed(clash),) if clash else ()
    return Proof(
        id="addresses.disjoint",
        title="The planes' networks do not overlap",
        holds=clash is None,
        numbers={field: str(network) for field, network in planes.items()},
        message=f"{planes[clash[1]]} overlaps {clash[0]}, {planes[clash[0]]}" if clash else "three networks apart",
        advice="give each plane a network of its own",
        fields=(*blamed, *(field for field in _CIDR if field not in blamed)),
    )


def room(plan: ClusterPlan) -> Proof:
    """Whether each subnet has an address for every node, besides those below the first host's number."""
    needed = FIRST_HOST + len(plan.nodes)
    smallest = min(plan.subnets, key=lambda subnet: subnet.network.num_addresses)
    has = smallest.network.num_addresses - 1
    blamed = f"networks.{'fabric' if smallest.plane.startswith('rail-') else smallest.plane}.cidr"
    counts = tuple(f"nodes[{i}].count" for i in range(len(plan.spec.nodes)))
    return Proof(
        id="addresses.room",
        title="Every subnet has an address for every node",
        holds=needed <= has,
        numbers={"subnet": str(smallest.network), "plane": smallest.plane, "needed": needed, "addresses": has},
        message=f"{smallest.plane}, {smallest.network}, has {has} addresses and needs {needed}",
        advice=f"use a shorter prefix, or fewer nodes than {len(plan.nodes)}",
        fields=(blamed, *(field for field in _CIDR if field != blamed), *counts, "networks.fabric.rails"),
    )


PROOFS = (disjoint, room)
