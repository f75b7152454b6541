"""A rank that gets stuck: in a collective, in its data, or in native code that holds the interpreter.

Arguments: rank, what it is stuck in, a folder. RECORD=fails|hangs|holds says what torch does when it is asked for its
record of collectives: it raises, does not come back, or does not and keeps the interpreter.
"""

import ctypes
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.failures import recorder
from runtime.failures import watchdog as watching
from runtime.failures.emergency import after
from runtime.failures.watchdog import Watchdog, WatchdogConfig
from runtime.place import Place
from runtime.stops.leave import leave


def slow_data() -> None:
    time.sleep(600)


def asked_for_its_record() -> bytes:
    match os.environ["RECORD"]:
        case "hangs":
            time.sleep(600)
        case "holds":
            ctypes.PyDLL(None).sleep(600)
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def main(rank: int, stuck_in: str, folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", timedelta(seconds=600), world_size=2, rank=rank)
    dist.all_reduce(torch.ones(4))
    watchdog = Watchdog(
        WatchdogConfig(limit_s=2, first_s=4, settle_s=1),
        Place(rank=rank, world=2, attempt="7"),
        folder / "stacks",
        lambda event, /, **fields: sys.stdout.write(f"{json.dumps({'event': event, **fields})}\n"),
    ).start()
    watchdog.beat(11)
    if "RECORD" in os.environ:
        watching.RECORD_S = 2.0
        recorder.dumps = lambda: iter([("nccl", asked_for_its_record)])
    if stuck_in == "data":
        slow_data()
    if stuck_in == "interpreter":
        ctypes.PyDLL(None).sleep(600)  # unlike CDLL, keeps the interpreter
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    except RuntimeError as error:  # the other's watchdog was faster
        leave(after(error))
