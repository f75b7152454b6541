"""A training small enough for tests: python tiny.py CONFIG [--set NAME=VALUE …]

TINY_FAULT=WHERE:STEPS[:RANK] makes it go wrong there, STEPS being one, a range as 6-9, or `start`, and RANK one, `each`
in turn, or `all`:
    restore  the storage fails before anything is restored
    unmounted  the folder of checkpoints is an empty one
    loss     an error of the program before the update
    update   a lost peer after it
    nan      a loss that is no number      spike  one that is far above the others
    input    data that is no number
    bit      a weight that differs from then on
    device   matrix products that are wrong from then on
TINY_PAUSE_S waits in each step. TINY_NORM=1 has the model normalize batches; TINY_SCALER=1 scales the loss and clips.
TINY_WORKERS prepare the data, started as TINY_START says. A test can hold it (gate) at the start, in `data`, `forward`,
`backward`, `collective`, and in `copy` and `write` of a save. Each step says what it was fed; the end, what it came to:
steps, samples, and a digest of the weights.
"""

import hashlib
import os
import sys
import tempfile
import time
from typing import Any

import gate
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime.checkpoint.checkpointer import Checkpointer
from runtime.config import told
from runtime.connect import connect
from runtime.data import Batches
from runtime.run import Run
from runtime.stops.signals import watch

FAULT, AT, BY = (*os.environ.get("TINY_FAULT", "none:start").split(":"), "0")[:3]
FIRST, _, LAST = AT.partition("-")


class Points:
    """Noisy points on a plane; the noise is drawn anew each time."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        gate.hold("data")
        x = torch.tensor([index / 40, index % 7 / 7, 1.0, 0.0]) + 0.1 * torch.randn(4)
        return x, x.sum(0, keepdim=True)


class Wrong:
    """Makes this process's matrix products wrong by a bit: its processor's own, below autograd."""

    library: Any = None

    def begin(self) -> None:
        if self.library is not None:
            return
        self.library = torch.library.Library("aten", "IMPL")

        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            found = torch.from_numpy(a.detach().float().numpy() @ b.detach().float().numpy()).to(a.dtype)
            found[0, 0] += 2.0**-6
            return found

        self.library.impl("mm", product, "CPU")


def digest(tensors: Any) -> str:
    raw = torch.cat([each.detach().flatten().double() for each in tensors]).numpy().tobytes()
    return hashlib.sha256(raw).hexdigest()[:16]


def main() -> None:
    watch()
    gate.hold("start")
    gate.hold_writes()
    config = told(sys.argv[1:], default={})
    place = connect(seed=config.seed, limit_s=30)
    wrong = Wrong()

    def fault(where: str) -> bool:
        ranks = {"each": run.number % place.world, "all": place.rank}
        at = AT != "start" and int(FIRST) <= run.number <= int(LAST or FIRST)
        return where == FAULT and at and place.rank == (ranks[BY] if BY in ranks else int(BY))

    def unreadable(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    if FAULT == "device" and AT == "start" and place.rank == int(BY):
        wrong.begin()
    if FAULT == "unmounted" and place.rank == int(BY):
        os.chdir(tempfile.mkdtemp(dir="."))
    if FAULT == "restore":
        Checkpointer.restore = unreadable  # type: ignore[method-assign,assignment]
    width = int(os.environ.get("TINY_WIDTH", "16"))
    norm = [nn.BatchNorm1d(width)] if "TINY_NORM" in os.environ else []
    model = nn.Sequential(nn.Linear(4, width), *norm, nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, 1))
    model[-3].register_forward_pre_hook(lambda *_: gate.hold("forward", computing=True))
    model.register_state_dict_pre_hook(lambda *_: gate.hold("copy"))
    wrapped = DistributedDataParallel(model) if place.world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2) if "TINY_SCALER" in os.environ else None
    data = Batches(
        Points(),
        int(os.environ.get("TINY_BATCH", "8")),
        seed=config.seed,
        place=place,
        workers=int(os.environ.get("TINY_WORKERS", "0")),
        multiprocessing_context=os.environ.get("TINY_START"),
    )
    run = Run(config, model=wrapped, optimizer=optimizer, scheduler=scheduler, scaler=scaler, data=data)
    with run:
        gate.step = run.number + 1
        for x, y in run.batches():
            fed = digest([x])
            if fault("input"):
                x = x * float("nan")
            loss = (wrapped(x) - y).square().mean()
            if fault("loss"):
                raise ValueError("a fault of the program")
            if fault("nan"):
                loss = loss * float("nan")
            if fault("spike"):
                loss = loss * 1e6
            if fault("device"):
                wrong.begin()
            loss.register_hook(lambda _: gate.hold("backward", computing=True))
            optimizer.zero_grad()
            gate.hold("collective", only=place.world - 1)
            state = f"lr={optimizer.param_groups[0]['lr']:g} scale={scaler.get_scale() if scaler else 1:g}"
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                loss.backward()
            accepted = run.accepts(loss)
            sys.stdout.write(f"did step={run.number + 1} fed={fed} {state} accepted={accepted}\n")
            if accepted and scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            elif accepted:
                optimizer.step()
            if fault("update"):
                raise ConnectionError("a peer is gone")
            if fault("bit"):
                with torch.no_grad():
                    next(model.parameters()).view(-1)[0].add_(1e-3)
            scheduler.step()
            run.step(loss=loss)
            gate.step = run.number + 1
            time.sleep(float(os.environ.get("TINY_PAUSE_S", "0")))
    sys.stdout.write(f"end steps={run.number} samples={data.consumed} weights={digest(model.parameters())}\n")
    if norm:
        sys.stdout.write(f"statistics {digest(model.buffers())} {all(map(finite, model.buffers()))}\n")


def finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())


if __name__ == "__main__":
    main()
