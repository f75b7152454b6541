"""A diagnosis of 1 GiB of a job's log against ripgrep that searches the same patterns in it: at least half as fast.

python benchmarks/diagnose_vs_ripgrep.py [FOLDER]    needs ripgrep (apt install ripgrep) and 1 GiB of disk

In turns, from the page cache; both with what processors there are. The log is steps of eight ranks, with warnings among
them that begin as rules do, and at the end a rank that dies. How much memory the diagnosis takes is shown beside it.
"""

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from benchmarks.record import begin
from validation.diagnose.job import read_job
from validation.diagnose.rule import load_rules

BYTES, FILES, TURNS = 1 << 30, 8, 4
OPTIONS = ("--no-unicode", "--regex-size-limit=4G", "--dfa-size-limit=1G", "--count")
LINES = (
    "[default{rank}]:2026-11-30 16:35:02,123 INFO train step {step} loss 2.{step} norm 0.51 tokens/s 183041\n"
    "[default{rank}]:gpu-{rank}:2211:2310 [{rank}] NCCL INFO Channel 0{rank}/0 : 3[3] -> 4[4] via P2P/CUMEM/read\n"
    "[default{rank}]:/usr/lib/python3/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the inputs have "
    "requires_grad=True. Gradients will be None\n"
)
LAST = (
    "[default3]:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total of 79 GiB\n"
)


def written(folder: Path) -> None:
    """The logs, BYTES in all."""
    for rank in range(FILES):
        block = "".join(LINES.format(rank=rank, step=step) for step in range(1000, 5000)).encode()
        with (folder / f"rank-{rank}.log").open("wb") as file:
            while file.tell() < BYTES // FILES:
                file.write(block)
            if rank == 3:
                file.write(LAST.encode())


def known() -> list[str]:
    """The patterns of all rules as ripgrep takes them without Unicode, with which so many take it hundreds of times as
    long: groups without names, and none that look around or back.
    """
    found = [re.sub(r"\(\?P<\w+>", "(?:", each).replace('\\"', '"') for rule in load_rules() for each in rule.patterns]
    return [each for each in found if not re.search(r"\(\?<?[=!]|\\[1-9]", each) and each.isascii()]


def diagnosed(folder: Path) -> tuple[float, int]:
    """How long a diagnosis takes, and the kilobytes that its processes have at most. In a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_diagnosed, folder).result()


def _diagnosed(folder: Path) -> tuple[float, int]:
    started = time.monotonic()
    found = read_job([folder])
    took = time.monotonic() - started
    if found.root_cause.rank != 3:
        raise SystemExit(f"not the cause: {found.root_cause}")
    own, children = (resource.getrusage(each).ru_maxrss for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return took, max(own, children)


def main(where: str | None) -> None:
    """Takes both in turns and prints how much of ripgrep's speed the diagnosis has."""
    if not shutil.which("rg"):
        raise SystemExit("no ripgrep · apt install ripgrep")
    run = begin("diagnose_vs_ripgrep")
    took: dict[str, list[float]] = {"ripgrep": [], "muster": []}
    memory = []
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-", dir=where) as name:
        folder = Path(name) / "logs"
        folder.mkdir()
        written(folder)
        patterns = Path(name) / "patterns"
        patterns.write_text("\n".join(known()) + "\n")
        for _ in range(TURNS):
            started = time.monotonic()
            search = subprocess.run(
                ["rg", *OPTIONS, "--file", patterns, folder],
                capture_output=True,
                text=True,
            )
            took["ripgrep"].append(round(time.monotonic() - started, 3))
            if search.returncode > 1:
                raise SystemExit(search.stderr)
            seconds, kilobytes = diagnosed(folder)
            took["muster"].append(round(seconds, 3))
            memory.append(kilobytes)
    typical = {kind: median(each[1:]) for kind, each in took.items()}
    run.end(
        f"{BYTES >> 30} GiB in {FILES} files: ripgrep {typical['ripgrep']} s, diagnosis {typical['muster']} s, "
        f"{max(memory) >> 10} MiB at most in a process",
        typical["ripgrep"] / typical["muster"],
        {"seconds": took, "max_rss_kb": max(memory), "first_is_not_counted": True},
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
