"""Planning and proving 1,024 GPU nodes against 128: eight times the nodes should take about eight times as long.

python benchmarks/plan_1024.py
"""

import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

from spec.load import load
from spec.plan import derive
from spec.proofs import prove
from spec.schema import Cluster

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "plan_1024.json"
RUNS = 3


def sized(nodes: int) -> Cluster:
    """The worked example with another number of GPU nodes, and switches and networks to match."""
    spec = load(ROOT / "clusters" / "h100-roce-1024.yaml").model_dump(mode="json", by_alias=True)
    spec["nodes"][2]["count"] = nodes
    spec["networks"]["fabric"].update(leaves=nodes // 4, spines=nodes // 8)
    spec["networks"]["storage"]["cidr"] = "10.80.0.0/20"
    spec["networks"]["management"]["cidr"] = "10.96.0.0/20"
    return Cluster.model_validate(spec)


def seconds(spec: Cluster) -> float:
    """CPU seconds to derive the plan and prove it: the least of some runs."""
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        prove(derive(spec))
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    """Runs both sizes and prints the ratio."""
    took = {nodes: round(seconds(sized(nodes)), 3) for nodes in (128, 1024)}
    told = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.platform()}, load {Path('/proc/loadavg').read_text().split()[0]}",
        "cpu_seconds": {str(nodes): value for nodes, value in took.items()},
        "ratio": round(took[1024] / took[128], 1),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n")
    print(  # noqa: T201
        f"planning 1,024 GPU nodes: {took[1024]} s of CPU, 128: {took[128]} s: "
        f"{told['ratio']}x for 8x the nodes · {RESULTS}"
    )


if __name__ == "__main__":
    main()
