"""A plain training of gloo ranks, of which one hangs as it is told: python hanging_training.py FAULT FOLDER

Each rank says `ready` when it is about to do what it is told; the others go on to the next collective.
"""

import os
import pdb
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ODD = 1
"""The rank in which it goes wrong."""


class Slow(torch.utils.data.Dataset[int]):
    """Storage that takes its time."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(600 if RANK == ODD else 0)
        return index


def all_sum(value: torch.Tensor) -> None:
    dist.all_reduce(value)


def hang(fault: str, folder: Path) -> None:
    if fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "loader":
        next(iter(torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=1)))
    if fault == "mismatch":
        dist.broadcast(torch.ones(4), 0)
    if fault == "ended":
        os._exit(0)
    if fault == "debugger":
        pdb.set_trace()
    if fault == "lock":
        held = threading.Lock()
        held.acquire()
        wait_for(held)
    if fault == "fifo":
        (folder / "feed").open().read()  # nobody ever opens its other end
    if fault == "storage":
        Path(os.environ["STALLED"], "shard").read_bytes()
    if fault == "loop":
        pack()


def wait_for(lock: threading.Lock) -> None:
    threading.Condition(lock).acquire()


def pack() -> None:
    number = 0
    while True:
        number = (number * 31 + 7) % 1000003


def main() -> None:
    fault, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    value = torch.ones(64)
    for step in range(1, 1_000_000):
        for each in range(3):
            all_sum(value / WORLD)
            time.sleep(0.002 * each)
        if step == 3:
            Path(folder, f"ready-{RANK}").touch()
            if RANK == ODD:
                hang(fault, folder)
            elif fault == "ended":  # gloo would tell of it; NCCL does not
                dist.distributed_c10d._get_default_store().wait(["never"], timedelta(minutes=10))


if __name__ == "__main__":
    main()
