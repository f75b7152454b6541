"""What a training job asks of a cluster: bytes, seconds, memory, storage and cost, each with its source and error."""

from spec.workload.compare import Comparison, compare
from spec.workload.curve import Curve, Point
from spec.workload.declare import Workload, declare
from spec.workload.figure import Figure, Impossible, WorkloadError
from spec.workload.gpus import Gpu, gpu
from spec.workload.hardware import Hardware, hardware
from spec.workload.layout import Layout, ParameterServers, Reinforcement, Zero
from spec.workload.model import Experts, Model
from spec.workload.plan import plan
from spec.workload.result import Plan
from spec.workload.search import Candidate, Found, search
from spec.workload.training import LLAMA3, RSC1, FailureRate, Precision, Recompute, Run, Training

__all__ = [
    "LLAMA3",
    "RSC1",
    "Candidate",
    "Comparison",
    "Curve",
    "Experts",
    "FailureRate",
    "Figure",
    "Found",
    "Gpu",
    "Hardware",
    "Impossible",
    "Layout",
    "Model",
    "ParameterServers",
    "Plan",
    "Point",
    "Precision",
    "Recompute",
    "Reinforcement",
    "Run",
    "Training",
    "Workload",
    "WorkloadError",
    "Zero",
    "compare",
    "declare",
    "gpu",
    "hardware",
    "plan",
    "search",
]
