"""A pool of two nodes that answers as slurmctld does."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    returncode: int = 0
    stdout: str = ""
    stderr: str = ""


@dataclass
class Slurm:
    """A pool of two nodes that does what it is told."""

    nodes: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            name: {
                "name": name,
                "state": "idle",
                "state_flags": ["DRAIN"],
                "reason": "muster: no certificate",
                "reason_set_by_user": "root",
                "reason_changed_at": 1795970000,
            }
            for name in ("gpu-0", "gpu-1")
        }
    )

    def __call__(self, argv: Sequence[str], timeout: float) -> Answer:
        assert timeout > 0
        if argv[0] == "sinfo":
            return Answer(stdout=json.dumps({"nodes": list(self.nodes.values())}))
        changes = dict(each.split("=", 1) for each in argv if "=" in each)
        for name in changes["NodeName"].split(","):
            opened = changes["State"] == "RESUME"
            self.nodes[name] |= {
                "state_flags": [] if opened else ["DRAIN"],
                "reason": "" if opened else changes["Reason"],
            }
        return Answer()

    def open_all(self) -> None:
        """As when nobody ever closed a node."""
        for node in self.nodes.values():
            node |= {"state_flags": [], "reason": ""}

    @property
    def open(self) -> set[str]:
        return {name for name, node in self.nodes.items() if not node["state_flags"]}
