"""What a converge run works from: the inventory, and the digest of all that decides its outcome."""

import hashlib
import json
from pathlib import Path
from typing import Any

from images import vendor
from images.vendor.gpus import simulated_gpus
from policies.pins import load_pins
from spec.deployment import Deployment
from spec.plan import ClusterPlan, inventory
from spec.schema import Substrate

ROLES = Path(__file__).parents[2] / "roles"
SECRETS = "secrets"
"""The folder in a stack's state for what roles generate: keys of munge and of the filesystem."""

VENDOR = "file:/srv/muster/vendor"
"""The vendor's package repository as lab machines see it."""

IGNORED = {"__pycache__", ".ansible", ".pytest_cache", "molecule"}


def hosts(plan: ClusterPlan, deployment: Deployment) -> dict[str, Any]:
    """The inventory of a standing cluster: the plan's, the pins, and how its nodes are reached."""
    found = inventory(plan)
    found["all"]["vars"] |= {
        **load_pins(plan.spec.pins).variables(),
        "ansible_user": "muster",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": f"-F {deployment.ssh_config}",
        "muster_state": str(deployment.state / SECRETS),
    }
    for name, variables in found["all"]["hosts"].items():
        variables["ansible_host"] = name
    if deployment.substrate is Substrate.LAB:
        found["all"]["vars"] |= {"muster_vendor_repository": VENDOR, "muster_vendor_key": vendor.key(vendor.digest())}
        for name, text in _simulated(plan).items():
            found["all"]["hosts"][name]["muster_simulated_gpus"] = text
    return found


def _simulated(plan: ClusterPlan) -> dict[str, str]:
    """The state of each lab node's simulated GPUs, as the roles write it: all of them healthy."""
    return {node.name: simulated_gpus(node.gpus, f"{plan.name}/{node.name}") for node in plan.nodes if node.gpus}


def inputs_digest(plan: ClusterPlan, roles: Path = ROLES) -> str:
    """SHA-256 over the plan, its pins and every file of the roles: where it differs, a run may change something."""
    digest = hashlib.sha256()
    parts = [plan.digest, load_pins(plan.spec.pins).digest, json.dumps(inventory(plan), sort_keys=True)]
    if plan.spec.substrate is Substrate.LAB:
        parts += [vendor.digest(), json.dumps(_simulated(plan), sort_keys=True)]
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    for path in sorted(roles.rglob("*")):
        inner = path.relative_to(roles)
        if path.is_file() and not IGNORED & set(inner.parts):
            digest.update(hashlib.sha256(str(inner).encode()).digest())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
