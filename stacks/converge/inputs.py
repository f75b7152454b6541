"""What a converge run works from: the inventory, and the digest of all that decides its outcome."""

import hashlib
import json
from pathlib import Path
from typing import Any

from policies.pins import load_pins
from spec.deployment import Deployment
from spec.plan import ClusterPlan, inventory

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
        "muster_vendor_repository": VENDOR,
    }
    for name, variables in found["all"]["hosts"].items():
        variables["ansible_host"] = name
    return found


def inputs_digest(plan: ClusterPlan, roles: Path = ROLES) -> str:
    """SHA-256 over the plan, its pins and every file of the roles: where it differs, a run may change something."""
    digest = hashlib.sha256()
    for part in (plan.digest, load_pins(plan.spec.pins).digest, json.dumps(inventory(plan), sort_keys=True)):
        digest.update(hashlib.sha256(part.encode()).digest())
    for path in sorted(roles.rglob("*")):
        inner = path.relative_to(roles)
        if path.is_file() and not IGNORED & set(inner.parts):
            digest.update(hashlib.sha256(str(inner).encode()).digest())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
