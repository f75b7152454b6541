"""Planning and proving 1,024 GPU nodes against 128: eight times the nodes should take about eight times as long.

python benchmarks/plan_1024.py
"""

import time
from pathlib import Path

from benchmarks.record import begin
from spec.load import load
from spec.plan import derive
from spec.proofs import prove
from spec.schema import Cluster

ROOT = Path(__file__).parents[1]
RUNS = 3


def sized(nodes: int) -> Cluster:
    """The worked example with another number of GPU nodes, and switches and networks to match."""
    spec = load(ROOT / "clusters" / "h100-roce-1024.yaml").model_dump(mode="json", by_alias=True)
    spec["nodes"][2]["count"] = nodes
    spec["networks"]["fabric"].update(leaves=nodes // 4, spines=nodes // 8)
    spec["networks"]["storage"]["cidr"] = "10.80.0.0/20"
    spec["networks"]["management"]["cidr"] = "10.96.0.0/20"
    return Cluster.model_validate(spec)


def seconds(spec: Cluster) -> list[float]:
    """CPU seconds to derive the plan and prove it, of each run."""
    found = []
    for _ in range(RUNS):
        started = time.process_time()
        prove(derive(spec))
        found.append(round(time.process_time() - started, 3))
    return found


def main() -> None:
    """Runs both sizes and prints the ratio of the quickest runs."""
    run = begin("plan_1024")
    took = {nodes: seconds(sized(nodes)) for nodes in (128, 1024)}
    large, small = min(took[1024]), min(took[128])
    run.end(
        f"planning 1,024 GPU nodes: {large} s of CPU, 128: {small} s, for 8x the nodes",
        large / small,
        {"cpu_seconds": {str(nodes): each for nodes, each in took.items()}},
    )


if __name__ == "__main__":
    main()
