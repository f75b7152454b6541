"""What a traced process does to a folder of checkpoints. Marks in the trace say what it had been told was done.

python crash_scenario.py FOLDER. A mark is an attempt to make a folder below one that is not there: it changes nothing.
"""

import contextlib
import os
import sys
from pathlib import Path

from store_samples import save

from runtime.checkpoint.tier import Tier


def mark(what: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.mkdir(f"/nonexistent/mark/{what}")  # noqa: PTH102


def main(folder: Path) -> None:
    mark("begin")
    with Tier(folder) as tier:
        for turn, (step, content) in enumerate([(1, 1), (2, 2)]):
            save(tier, step, turn, content)
            mark(f"holds-{step}-{content}")
        mark("gives-1")
        tier.remove(1)
        save(tier, 2, 2, 3)
        mark("holds-2-3")
        save(tier, 4, 3, 4)
        mark("holds-4-4")
        mark("gives-4")
        tier.quarantine(4, "for the test")
        save(tier, 5, 4, 5)
        mark("holds-5-5")
    mark("end")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
