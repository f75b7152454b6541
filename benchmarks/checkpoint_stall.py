"""How long training stands still for a save: ours, torch.save, and torch's own asynchronous save, of the same 2 GiB.

One process, tensors in host memory, in turns on the same disk. Each save is given the time to end before the next
turn. torch.save is not asked to sync. The first turn, in which buffers are made, is shown and not counted.

Ours is taken twice: as it is by default, and with `overlap`, where a step of computing follows the save and the
optimizer's step waits for what is not copied by then; that wait is part of the stall. How much longer the step itself
takes beside the copy is shown apart: with two processors the copy takes some of them.

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


def compute() -> float:
    """What stands for a forward and backward pass: products of matrices, about a second. How long it took."""
    started = time.monotonic()
    matrix = torch.rand(1024, 1024)
    for _ in range(30):
        matrix = matrix @ matrix / matrix.norm()
    return round(time.monotonic() - started, 4)


class Ours:
    """Saves by the runtime into a folder of their own."""

    def __init__(self, folder: Path, training: Training, overlap: bool) -> None:
        place = Place()
        config = CheckpointConfig(folder=folder, read_back=False, overlap=overlap)
        self._training, self._checkpointer = training, Checkpointer(config, place, Control(place))

    def turn(self, step: int) -> tuple[float, float]:
        """The stall of a save, and how long the step after it took."""
        waited_s = self._checkpointer.waited_s
        stall_s = self._checkpointer.save(self._training, step)
        step_s = compute()
        self._training.optimizers[0].step()
        stall_s += self._checkpointer.waited_s - waited_s
        if not self._checkpointer.finish(600) or not all(each.safe for each in self._checkpointer.poll()):
            raise SystemExit("a save failed · the benchmark counts only checkpoints that stand")
        return round(stall_s, 4), step_s

    def close(self) -> None:
        self._checkpointer.close()


def main(where: str | None) -> None:
    """Takes all in turns and prints our stall over that of torch.save."""
    run = begin("checkpoint_stall")
    state = model()
    # No gradients: the optimizer's step changes nothing, but waits as it would.
    training = Training(state, torch.optim.SGD(state.parameters(), lr=0.0))
    took: dict[str, list[float]] = {}
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-", dir=where) as name:
        folder = Path(name)
        ours = {
            kind: Ours(folder / kind, training, overlap) for kind, overlap in (("muster", False), ("overlap", True))
        }
        for turn in range(ROUNDS + 1):
            for kind, each in ours.items():
                stall_s, step_s = each.turn(turn)
                took.setdefault(kind, []).append(stall_s)
                took.setdefault(f"step beside {kind}", []).append(step_s)
            took.setdefault("step alone", []).append(compute())
            started = time.monotonic()
            torch.save(state.state_dict(), folder / "whole.pt")
            took.setdefault("torch.save", []).append(round(time.monotonic() - started, 4))
            (folder / "whole.pt").unlink()
            started = time.monotonic()
            under_way: Any = async_save({"model": state.state_dict()}, checkpoint_id=folder / "dcp")
            took.setdefault("dcp.async_save", []).append(round(time.monotonic() - started, 4))
            under_way.result()
            shutil.rmtree(folder / "dcp")
        for each in ours.values():
            each.close()
    dist.destroy_process_group()
    typical = {kind: median(each[1:]) for kind, each in took.items()}
    run.end(
        f"stall of a save of {STATE_BYTES >> 30} GiB: {typical['muster']} s, with overlap {typical['overlap']} s, "
        f"DCP async_save {typical['dcp.async_save']} s, torch.save {typical['torch.save']} s: of ours with overlap",
        typical["torch.save"] / typical["overlap"],
        {
            "seconds": took,
            "first_is_not_counted": True,
            "over_torch_save": {kind: round(typical[kind] / typical["torch.save"], 4) for kind in ours},
            "over_dcp_async": {kind: round(typical[kind] / typical["dcp.async_save"], 4) for kind in ours},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
