"""Writing and restoring 2 GiB of a training state, against what dd gets from the same disk in the same turn.

In turns, on fresh files. The write is what a save does in the background until its checkpoint stands: writing, hashing,
syncing, committing. The whole save, shown beside it, also copies to host memory before and removes the older checkpoint
after. The restore is from its call until the live tensors are filled: looking for the newest, reading, checking every
hash, copying into place. The buffers are those of earlier turns; the first turn is not counted. The disk is shared with
others and its speed varies twofold, so each turn gives a ratio of its own, and the median counts.

python benchmarks/checkpoint_throughput.py [FOLDER]    needs 7 GiB of memory and 6 GiB of disk
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.checkpoint_stall import STATE_BYTES, model
from benchmarks.record import begin
from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.retention import Retention
from runtime.checkpoint.state import Training
from runtime.control import Control
from runtime.place import Place

TURNS = 9
COUNT, SYNCED = f"count={STATE_BYTES >> 24}", ("oflag=direct", "conv=fsync")


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.monotonic()
    act()
    return time.monotonic() - started


def dd(*arguments: str) -> None:
    """Runs dd with blocks of 16 MiB."""
    subprocess.run(["dd", "bs=16M", *arguments], check=True, capture_output=True)


def forget(path: Path) -> None:
    """Takes a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def main(where: str) -> None:
    """Takes all in turns and prints the ratios of save and restore: the lower one is the result's."""
    run = begin("checkpoint_throughput")
    state = model()
    took: dict[str, list[float]] = {"dd_write": [], "write": [], "save": [], "dd_read": [], "restore": []}
    told: dict[str, float] = {}

    def tell(event: str, /, **fields: Any) -> None:
        if event in ("checkpoint.written", "checkpoint.committed"):
            told[event] = fields["seconds"]

    with tempfile.TemporaryDirectory(prefix=".muster-benchmark-", dir=where) as name:
        plain, place = Path(name) / "plain", Place()
        config = CheckpointConfig(folder=Path(name) / "checkpoints", read_back=False, keep=Retention(keep_last=1))
        with Checkpointer(config, place, Control(place), tell) as checkpointer:
            for turn in range(TURNS):
                took["dd_write"].append(seconds(lambda: dd("if=/dev/zero", f"of={plain}", COUNT, *SYNCED)))
                started = time.monotonic()
                checkpointer.save(Training(state), turn, wait=True)
                took["save"].append(time.monotonic() - started)
                took["write"].append(sum(told.values()))
                took["dd_read"].append(seconds(lambda: dd(f"if={plain}", "of=/dev/null", "iflag=direct")))
                plain.unlink()
                for data in config.folder.glob(f"step-{turn:012d}/*.data"):
                    forget(data)
                digests = [each.detach().sum().item() for each in state.parameters()]
                with torch.no_grad():
                    for each in state.parameters():
                        each.zero_()
                started = time.monotonic()
                resumed = checkpointer.restore(Training(state))
                took["restore"].append(time.monotonic() - started)
                if resumed is None or resumed.step != turn:
                    raise SystemExit(f"resumed {resumed}, saved step {turn}")
                if digests != [each.detach().sum().item() for each in state.parameters()]:
                    raise SystemExit("what was put back is not what was saved")
    speed = {kind: round(STATE_BYTES / median(each[1:]) / 1e9, 2) for kind, each in took.items()}
    ratios = {
        kind: median(theirs / ours for theirs, ours in zip(took[against][1:], took[kind][1:], strict=True))
        for kind, against in (("write", "dd_write"), ("save", "dd_write"), ("restore", "dd_read"))
    }
    numbers = {
        "bytes": STATE_BYTES,
        "ratios": {k: round(each, 2) for k, each in ratios.items()},
        "gb_per_s": speed,
        "seconds": {k: [round(s, 3) for s in v] for k, v in took.items()},
    }
    run.end(
        f"write {speed['write']} GB/s, dd {speed['dd_write']}: {ratios['write']:.2f}x, the whole save "
        f"{ratios['save']:.2f}x; restore {speed['restore']} GB/s, dd {speed['dd_read']}: {ratios['restore']:.2f}x; "
        "the lower of write and restore",
        min(ratios["write"], ratios["restore"]),
        numbers,
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
