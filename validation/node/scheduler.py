"""What the scheduler thinks of this node."""

import re

from validation.node.host import CommandFailed, Host
from validation.node.measure import Unmeasurable, measure


@measure("slurm.node_state", source="scontrol show node")
def node_state(host: Host) -> dict[str, str | None]:
    """`{state, reason, gres}`: the state as in `IDLE+DRAIN`, the reason of a drain, the GPUs that jobs can ask for.

    Raises Unmeasurable where Slurm does not know the node, or the node no Slurm.
    """
    try:
        return read_node(host.run("scontrol", "show", "node", "--oneliner", host.node))
    except CommandFailed as error:
        if "not found" in str(error):
            raise Unmeasurable(f"Slurm knows no node {host.node}") from None
        if "configuration source" in str(error):
            raise Unmeasurable("there is no Slurm configuration on this node") from None
        raise


def read_node(told: str) -> dict[str, str | None]:
    """One line of `scontrol show node`. Raises ValueError where it shows no state.

    Slurm marks a state with a sign, as `*` where the node does not answer: it is kept.
    """
    state = re.search(r"(?:^|\s)State=(\S+)", told)
    if not state:
        raise ValueError(f"scontrol shows no state: {told[:200]!r}")
    reason = re.search(r"\sReason=(.*?)\s*(?:\[[^\]]*\])?\s*(?:$|\n)", told)
    gres = re.search(r"\sGres=(\S+)", told)
    return {
        "state": state.group(1),
        "reason": reason.group(1) if reason else None,
        "gres": None if not gres or gres.group(1) == "(null)" else gres.group(1),
    }
