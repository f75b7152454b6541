"""How long a converge that changes nothing takes: Muster's settings against Ansible's own, on the same standing lab.

Both run roles/site.yml over the same inventory. Stock means ansible.cfg's defaults: five forks, no pipelining, no
mitogen. Needs a converged cluster: python benchmarks/converge_vs_stock_ansible.py [STACK]
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spec.load import load
from spec.plan import derive
from stacks import lifecycle
from stacks.converge import ROLES, converge, hosts

RESULTS = Path(__file__).parent / "results" / "converge_vs_stock_ansible.json"
STOCK = "[defaults]\nroles_path = {roles}\ninterpreter_python = /usr/bin/python3\n"
"""Ansible's defaults, told only where the roles are and which Python the nodes have."""


def ours(stack: str) -> dict[str, Any]:
    """Seconds and changed tasks of one run as `muster converge` does it."""
    deployment = lifecycle.deployment(stack)
    started = time.monotonic()
    done = converge(derive(load(deployment.spec)), deployment, lambda *_: None)
    if not done.holds:
        raise SystemExit(f"the cluster does not converge: {done.summary()}")
    return {"seconds": round(time.monotonic() - started, 1), "changed": done.changed_tasks, "hosts": len(done.hosts)}


def stock(stack: str) -> dict[str, Any]:
    """Seconds of one run as `ansible-playbook` does it by itself."""
    deployment = lifecycle.deployment(stack)
    inventory = hosts(derive(load(deployment.spec)), deployment)
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-") as name:
        folder = Path(name)
        (folder / "hosts.json").write_text(json.dumps(inventory))
        (folder / "ansible.cfg").write_text(STOCK.format(roles=ROLES))
        kept = {key: os.environ[key] for key in ("HOME", "PATH", "LANG") if key in os.environ}
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.json", str(ROLES / "site.yml")]
        started = time.monotonic()
        done = subprocess.run(
            argv, cwd=folder, env=kept | {"ANSIBLE_CONFIG": "ansible.cfg"}, capture_output=True, text=True, check=False
        )
        seconds = round(time.monotonic() - started, 1)
    if done.returncode:
        raise SystemExit(f"stock Ansible ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-1000:]}")
    return {"seconds": seconds}


def main() -> None:
    """Runs both once and prints the ratio."""
    stack = sys.argv[1] if len(sys.argv) > 1 else "lab"
    told: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.platform()}, load {Path('/proc/loadavg').read_text().split()[0]}",
        "muster": ours(stack),
        "stock": stock(stack),
    }
    told["ratio"] = round(told["stock"]["seconds"] / told["muster"]["seconds"], 1)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n")
    print(  # noqa: T201
        f"no-change converge of {told['muster']['hosts']} nodes: stock Ansible {told['stock']['seconds']} s, "
        f"muster {told['muster']['seconds']} s: {told['ratio']}x · {RESULTS}"
    )


if __name__ == "__main__":
    main()
