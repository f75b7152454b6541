"""A lab that stands, as tests use it: through the command that people type, and through ssh."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.exits import Exit
from spec.deployment import Deployment
from spec.folders import state

ROOT = Path(__file__).parents[2]
MUSTER = ROOT / ".venv" / "bin" / "muster"


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

    def ssh(self, node: str, *command: str, script: str | None = None) -> str:
        """Runs a command on a node as its operator would, or a script as root; returns what it printed."""
        argv = ["ssh", "-F", str(self.deployment.ssh_config), "-o", "BatchMode=yes", node]
        argv += ["sudo", "-n", "sh", "-es"] if script is not None else command
        done = subprocess.run(argv, input=script, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{node}: {script or command}: {done.stderr}"
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

    def last_run(self) -> Any:
        """The newest certification run."""
        return json.loads((Path(self.told("report")["json"]).parent / "run.json").read_text())

    def pool(self) -> dict[str, str]:
        """Each node's state in Slurm, as `sinfo` tells users."""
        lines = self.ssh("control-0", "sinfo", "--noheader", "--Node", "--format='%N %t'").split("\n")
        return dict(line.split() for line in lines if line.strip())
