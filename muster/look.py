"""Looks at which hardware the nodes are now, without examining them."""

from collections.abc import Callable

from muster.standing import Standing
from policies.identity import IdentityError, identities
from spec.schema import Role
from validation.examine import examine_nodes

LEAST = ("cpu.count",)
"""The suite tells the identity before it measures, and takes at least one measurement: the cheapest."""

LIMIT_S = 30.0
"""Seconds that a node may take: reading its identity takes one or two."""


async def look(cluster: Standing, say: Callable[[str], None]) -> dict[str, str | IdentityError]:
    """The digest of the identity that each compute node has now, or why it is not known. All in one wave."""
    names = [node.name for node in cluster.plan.with_role(Role.COMPUTE)]
    if not names:
        return {}
    told = await examine_nodes(
        cluster.plan,
        cluster.transport(),
        names,
        say,
        expectations_of=lambda _, node: cluster.expectations(node),
        only=LEAST,
        limit_s=LIMIT_S,
    )
    return identities(told)
