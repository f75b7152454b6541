"""What follows from a spec: `derive(cluster)` gives the plan, and the functions here give views of it."""

from spec.plan.capabilities import CAPABILITIES, LACKING
from spec.plan.derive import derive
from spec.plan.expectations import expectations, time_server
from spec.plan.firewall import firewall
from spec.plan.inventory import inventory
from spec.plan.model import (
    ClusterPlan,
    Expectations,
    FirewallRule,
    Interface,
    JobEnvironment,
    Leaf,
    Node,
    PlaneName,
    Subnet,
    Switches,
)

__all__ = [
    "CAPABILITIES",
    "LACKING",
    "ClusterPlan",
    "Expectations",
    "FirewallRule",
    "Interface",
    "JobEnvironment",
    "Leaf",
    "Node",
    "PlaneName",
    "Subnet",
    "Switches",
    "derive",
    "expectations",
    "firewall",
    "inventory",
    "time_server",
]
