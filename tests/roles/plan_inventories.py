"""Variables of hosts as Ansible sees them: of every plan in clusters/, and of real hosts with bonds and VLANs."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, init_plugin_loader
from ansible.template import Templar, trust_as_template

from policies.pins import load_pins
from spec.load import load
from spec.plan import derive, inventory

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "roles"
OWN = ("base", "network", "firewall", "chrony", "rdma", "gpu")
"""The roles that are examined here."""

CLUSTERS = ("lab", "lab-containers", "lab-wide", "h100-roce-1024")

init_plugin_loader([])
filter_loader.add_directory(str(ROLES / "network" / "filter_plugins"))


def read(path: Path) -> Any:
    """A YAML file of a role: what is a template in it may be evaluated. An absent or empty file is an empty mapping."""
    if not path.exists():
        return {}
    return DataLoader().load_from_file(str(path), trusted_as_template=True) or {}


@cache
def clustered(name: str) -> dict[str, Any]:
    """The inventory of a cluster, with what the substrate and the pins add."""
    cluster = load(ROOT / "clusters" / f"{name}.yaml")
    found = inventory(derive(cluster))
    found["all"]["vars"] |= load_pins(cluster.pins).variables() | {
        "muster_vendor_repository": "file:/srv/muster/vendor",
        "muster_vendor_key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n",
        "muster_state": "/nowhere",
    }
    return found


def one_of_each(name: str) -> list[str]:
    """The first host of each node group: the others differ in names and numbers only."""
    groups = clustered(name)["all"]["children"]
    return [next(iter(group["hosts"])) for key, group in groups.items() if key.startswith("group_")]


def hosts() -> Iterator[tuple[str, str]]:
    """A cluster and a host of it, for every kind of host there is."""
    return ((name, host) for name in CLUSTERS for host in one_of_each(name))


def variables(name: str, host: str, **override: Any) -> dict[str, Any]:
    """All variables of a host, as far as roles see them; those in `override` win."""
    found: dict[str, Any] = {}
    for role in (*OWN, "packages"):
        found |= read(ROLES / role / "defaults" / "main.yml")
    for role in OWN:
        found |= read(ROLES / "group_vars" / "all" / f"{role}.yml")
    plan = clustered(name)["all"]
    found |= plan["vars"] | plan["hosts"][host]
    for role in (*OWN, "packages"):
        found |= read(ROLES / role / "vars" / "main.yml")
    groups = {key: list(group["hosts"]) for key, group in plan["children"].items()} | {"all": list(plan["hosts"])}
    found |= {"inventory_hostname": host, "groups": groups, "ansible_managed": "Ansible managed"}
    return found | {"ansible_check_mode": False} | override


def evaluate(expression: str, known: dict[str, Any]) -> Any:
    """The value of a Jinja expression. Raises where anything in it is undefined."""
    return Templar(loader=DataLoader(), variables=known).template(trust_as_template("{{ " + expression + " }}"))


def render(template: Path, known: dict[str, Any]) -> str:
    """A role's template as the module `template` writes it."""
    text = Templar(loader=DataLoader(), variables=known).template(
        trust_as_template(template.read_text()), overrides={"trim_blocks": True, "keep_trailing_newline": True}
    )
    return str(text)
