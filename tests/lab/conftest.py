"""One lab for all tests in this folder: stood up by the command that people type, taken down by it at the end."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.exits import Exit
from spec.deployment import Deployment
from spec.folders import state

ROOT = Path(__file__).parents[2]
MUSTER = ROOT / ".venv" / "bin" / "muster"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the lab, and root for it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(2400))
            item.add_marker(pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts need root"))


@dataclass(frozen=True)
class Lab:
    """A lab that stands."""

    stack: str
    folder: Path

    def muster(self, *argv: str, code: Exit | None = Exit.PASS) -> subprocess.CompletedProcess[str]:
        """Runs `muster`; the exit code must be `code`, any where that is none."""
        done = subprocess.run(
            [str(MUSTER), *argv], cwd=self.folder, capture_output=True, text=True, timeout=1800, check=False
        )
        assert code is None or done.returncode == code, (
            f"muster {argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def told(self, *argv: str, code: Exit | None = Exit.PASS) -> Any:
        """What `muster … --json` says of this stack."""
        return json.loads(self.muster(*argv, "--stack", self.stack, "--json", code=code).stdout)

    def ssh(self, node: str, *command: str) -> str:
        """Runs a command on a node as its operator would; returns what it printed."""
        argv = ["ssh", "-F", str(self.deployment.ssh_config), "-o", "BatchMode=yes", node, *command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{node}: {command}: {done.stderr}"
        return done.stdout

    @property
    def deployment(self) -> Deployment:
        """Where it is and how it is reached."""
        return Deployment.model_validate_json((state(self.stack) / "deployment.json").read_text())

    def certify(self, code: Exit | None = Exit.PASS) -> set[tuple[str, str]]:
        """Certifies all nodes; returns what kept nodes out, as (control, node)."""
        run = self.told("certify", code=code)["run"]
        assert len(run["examinations"]) == len(self.deployment.nodes)
        return {
            (verdict["control"], verdict["node"])
            for verdict in run["verdicts"]
            if verdict["state"] not in ("pass", "not_applicable", "waived")
        }

    def pool(self) -> dict[str, str]:
        """Each node's state in Slurm, as `sinfo` tells users."""
        lines = self.ssh("control-0", "sinfo", "--noheader", "--Node", "--format='%N %t'").split("\n")
        return dict(line.split() for line in lines if line.strip())


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of clusters/lab.yaml under a name of its own, certified."""
    stack = f"t{secrets.token_hex(3)}"
    folder = tmp_path_factory.mktemp("work")
    made = Lab(stack, folder)
    try:
        made.muster("up", stack, "--spec", str(ROOT / "clusters" / "lab.yaml"))
        yield made
    finally:
        made.muster("down", stack, code=None)
