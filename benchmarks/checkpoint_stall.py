"""How long training stands still for a save: ours, torch.save, and torch's own asynchronous save, of the same 2 GiB.

One process, tensors in host memory, in turns on the same disk. Ours and torch's asynchronous save are each given the
time to end before the next turn. torch.save is not asked to sync. The first save of each asynchronous kind, which
also makes the buffers, is shown and not counted.

python benchmarks/checkpoint_stall.py [FOLDER]    needs 6 GiB of memory and 8 GiB of disk
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint import async_save  # type: ignore[attr-defined]

from benchmarks.record import begin
from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.state import Training
from runtime.control import Control
from runtime.place import Place

STATE_BYTES, TENSORS, ROUNDS = 2 << 30, 32, 3


def model() -> torch.nn.Module:
    """Parameters of STATE_BYTES in all."""
    each = STATE_BYTES // TENSORS // 4
    return torch.nn.ParameterList(torch.nn.Parameter(torch.rand(each)) for _ in range(TENSORS))


def main(where: str | None) -> None:
    """Takes the three in turns and prints our stall over that of torch.save."""
    run = begin("checkpoint_stall")
    state = model()
    took: dict[str, list[float]] = {"muster": [], "torch.save": [], "dcp.async_save": []}
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-", dir=where) as name:
        folder = Path(name)
        place = Place()
        config = CheckpointConfig(folder=folder / "muster", read_back=False)
        with Checkpointer(config, place, Control(place)) as checkpointer:
            for turn in range(ROUNDS + 1):
                took["muster"].append(round(checkpointer.save(Training(state), turn), 4))
                if not checkpointer.finish(600) or not all(each.safe for each in checkpointer.poll()):
                    raise SystemExit("a save failed · the benchmark counts only checkpoints that stand")
                started = time.monotonic()
                torch.save(state.state_dict(), folder / "whole.pt")
                took["torch.save"].append(round(time.monotonic() - started, 4))
                (folder / "whole.pt").unlink()
                started = time.monotonic()
                under_way: Any = async_save({"model": state.state_dict()}, checkpoint_id=folder / "dcp")
                took["dcp.async_save"].append(round(time.monotonic() - started, 4))
                under_way.result()
                shutil.rmtree(folder / "dcp")
    dist.destroy_process_group()
    typical = {kind: median(each[1:]) for kind, each in took.items()}
    run.end(
        f"stall of a save of {STATE_BYTES >> 30} GiB: {typical['muster']} s, torch.save {typical['torch.save']} s, "
        f"DCP async_save {typical['dcp.async_save']} s; ours over torch.save",
        typical["muster"] / typical["torch.save"],
        {
            "seconds": took,
            "first_is_not_counted": True,
            "over_dcp_async": round(typical["muster"] / typical["dcp.async_save"], 3),
        },
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
