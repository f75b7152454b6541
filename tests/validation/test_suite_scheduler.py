"""A node as Slurm tells it."""

import pytest
from recorded_host import recorded

from validation.node import scheduler


def test_slurms_line_of_a_node() -> None:
    assert scheduler.read_node(recorded("scontrol_node.txt")) == {
        "state": "IDLE+DRAIN+INVALID_REG",
        "reason": "muster: no certificate",
        "gres": "gpu:8",
    }
    told = "NodeName=a State=DOWN*+DRAIN Gres=(null) Reason=bad disk, see ticket [root@2026-11-29T15:00:00]"
    assert scheduler.read_node(told) == {"state": "DOWN*+DRAIN", "reason": "bad disk, see ticket", "gres": None}
    with pytest.raises(ValueError, match="shows no state"):
        scheduler.read_node("slurm_load_node error: Unable to contact slurm controller")
