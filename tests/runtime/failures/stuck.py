"""A rank that gets stuck: in a collective, in its data, or in native code that holds the interpreter.

Arguments: rank, what it is stuck in, a folder.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.failures.emergency import after
from runtime.failures.watchdog import Watchdog, WatchdogConfig
from runtime.place import Place
from runtime.stops.leave import leave


def slow_data() -> None:
    time.sleep(600)


def main(rank: int, stuck_in: str, folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", timedelta(seconds=600), world_size=2, rank=rank)
    dist.all_reduce(torch.ones(4))
    watchdog = Watchdog(
        WatchdogConfig(limit_s=2, first_s=4, settle_s=1),
        Place(rank=rank, world=2, attempt="7"),
        folder / "stacks",
        lambda event, /, **_: sys.stdout.write(f"{event}\n"),
    ).start()
    watchdog.beat(11)
    if stuck_in == "data":
        slow_data()
    if stuck_in == "interpreter":
        import ctypes

        ctypes.PyDLL(None).sleep(600)  # unlike CDLL, keeps the interpreter
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    except RuntimeError as error:  # the other's watchdog was faster
        leave(after(error))
