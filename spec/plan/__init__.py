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
    Floor,
    Interface,
    JobEnvironment,
    Leaf,
    Node,
    Placement,
    PlaneName,
    Subnet,
    Switches,
    TrafficClass,
)
from spec.plan.thresholds import nccl_floor, nvlink_floor, pair_floor

__all__ = [
    "CAPABILITIES",
    "LACKING",
    "ClusterPlan",
    "Expectations",
    "FirewallRule",
    "Floor",
    "Interface",
    "JobEnvironment",
    "Leaf",
    "Node",
    "Placement",
    "PlaneName",
    "Subnet",
    "Switches",
    "TrafficClass",
    "derive",
    "expectations",
    "firewall",
    "inventory",
    "nccl_floor",
    "nvlink_floor",
    "pair_floor",
    "time_server",
]
