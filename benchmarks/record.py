"""What a benchmark leaves: its ratio, the raw numbers that it comes from, and the machine that they were taken on."""

import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Run:
    """One run of a benchmark. `load` is the machine's before the benchmark added to it: what else was running."""

    name: str
    began: datetime
    load: str
    into: Path

    def end(self, said: str, ratio: float, numbers: Mapping[str, Any]) -> Path:
        """Writes NAME.json, prints what is said with the ratio and the machine, and returns the file's path.

        Raises ValueError where the ratio is none: a time of zero, or one that was never taken.
        """
        if not math.isfinite(ratio) or ratio <= 0:
            raise ValueError(f"{self.name}: {ratio} is no ratio · {dict(numbers)} · run it again")
        told = {
            "when": self.began.isoformat(timespec="seconds"),
            "machine": machine(),
            "load_before": self.load,
            "ratio": round(ratio, 2),
            **numbers,
        }
        path = self.into / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
        sys.stdout.write(f"{said}: {ratio:.2f}x · {told['machine']}, load before {self.load} · {path}\n")
        return path


def begin(name: str, into: Path = RESULTS) -> Run:
    """Notes when a benchmark begins and how busy the machine is then."""
    return Run(name, datetime.now(UTC), " ".join(Path("/proc/loadavg").read_text().split()[:3]), into)


def machine() -> str:
    """Processors, memory and kernel of this machine, for people."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} × {model}, {memory:.0f} GiB, {platform.platform()}"
