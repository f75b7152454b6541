"""How long a converge that changes nothing takes: Muster's settings against Ansible's own, on the same standing lab.

Both run roles/site.yml over the same inventory, in turns. Stock means ansible.cfg's defaults: five forks, no
pipelining, no mitogen. A first run by Muster is not counted: it puts right what had drifted. A counted run that changes
anything, or that does not reach every node, ends the benchmark.

Needs a cluster that stands: python benchmarks/converge_vs_stock_ansible.py [STACK]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import begin
from spec.deployment import Deployment
from spec.load import load
from spec.plan import ClusterPlan, derive
from stacks import lifecycle
from stacks.converge import ROLES, converge, hosts

TURNS = ("muster", "stock", "stock", "muster")
LIMIT_S = 3600.0

STOCK = "[defaults]\nroles_path = {roles}\ninterpreter_python = /usr/bin/python3\n"
"""Ansible's defaults, told only where the roles are and which Python the nodes have."""

RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+) ", re.MULTILINE)
"""What ansible-playbook says of each host at its end."""


def ours(plan: ClusterPlan, deployment: Deployment, *, counted: bool = True) -> float:
    """Seconds of one run as `muster converge` does it. Raises SystemExit where a counted run is not one."""
    started = time.monotonic()
    done = converge(plan, deployment, lambda *_: None)
    seconds = time.monotonic() - started
    if not done.holds or (counted and done.changed_tasks):
        raise SystemExit(f"muster: {done.summary()} · stack {deployment.stack} · muster converge says more")
    return round(seconds, 1)


def stock(plan: ClusterPlan, deployment: Deployment) -> float:
    """Seconds of one run as `ansible-playbook` does it by itself. Raises SystemExit where it is not one."""
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-") as name:
        folder = Path(name)
        (folder / "hosts.json").write_text(json.dumps(hosts(plan, deployment)))
        (folder / "ansible.cfg").write_text(STOCK.format(roles=ROLES))
        kept = {key: os.environ[key] for key in ("HOME", "PATH", "LANG") if key in os.environ}
        kept |= {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "home")}
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.json", str(ROLES / "site.yml")]
        started = time.monotonic()
        done = subprocess.run(
            argv,
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        seconds = time.monotonic() - started
    if wrong := fault(done.returncode, done.stdout, [node.name for node in plan.nodes]):
        raise SystemExit(f"stock Ansible: {wrong}:\n{done.stdout[-2000:]}\n{done.stderr[-1000:]}")
    return round(seconds, 1)


def fault(status: int, printed: str, nodes: list[str]) -> str | None:
    """Why a run of ansible-playbook is not one that reached every node and changed nothing; none where it is. Pure."""
    if status:
        return f"it ended with {status}"
    told = {match[1]: [int(match[i]) for i in range(2, 6)] for match in RECAP.finditer(printed)}
    if told.keys() != set(nodes):
        return f"it told of {', '.join(sorted(told)) or 'no node'}, not of {', '.join(sorted(nodes))}"
    wrong = [name for name, (ok, *others) in told.items() if not ok or any(others)]
    return f"it did not leave {', '.join(sorted(wrong))} as they were" if wrong else None


def main() -> None:
    """Runs both in turns and prints the ratio of the quickest runs."""
    run = begin("converge_vs_stock_ansible")
    deployment = lifecycle.deployment(sys.argv[1] if len(sys.argv) > 1 else "lab")
    plan = derive(load(deployment.spec))
    ours(plan, deployment, counted=False)
    took: dict[str, list[float]] = {"muster": [], "stock": []}
    for side in TURNS:
        took[side].append(ours(plan, deployment) if side == "muster" else stock(plan, deployment))
        sys.stdout.write(f"{side:8}{took[side][-1]:8.1f} s\n")
        sys.stdout.flush()
    muster, ansible = min(took["muster"]), min(took["stock"])
    run.end(
        f"no-change converge of {len(plan.nodes)} nodes: stock Ansible {ansible} s, muster {muster} s",
        ansible / muster,
        {"hosts": len(plan.nodes), "seconds": took},
    )


if __name__ == "__main__":
    main()
