"""A plain training of two gloo ranks that fails for real as it is told, and says of it what any program would:
python provoked_training.py FAULT
"""

import ctypes
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LIMIT = timedelta(seconds=4)
LAST = RANK == WORLD - 1
SECOND = 3
"""The step in which it goes wrong."""


class Slow(torch.utils.data.Dataset[int]):
    """Storage that takes its time."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01 if index < 2 * SECOND else 30)
        return index


def meet(world: int = WORLD) -> None:
    port = os.environ.get("PROVOKED_PORT")
    how = f"tcp://127.0.0.1:{port}" if port else "env://"
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None) if port else None
    dist.init_process_group("gloo", how, LIMIT, world_size=world, rank=RANK)


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stdout.flush()


def train(fault: str) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = (
        iter(torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=1, timeout=3)) if fault == "reads" else None
    )
    for step in range(1, 9):
        if data is not None:
            next(data)
        if step == SECOND and LAST and fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == SECOND and LAST and fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if WORLD > 1 and fault == "stopped":
            dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if step == SECOND and LAST and fault == "desynchronised":
            dist.broadcast(torch.ones(4), 0)
        for parameter in model.parameters() if WORLD > 1 else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        say(f"INFO step {step} loss {loss.item():.4f}")
        if step == SECOND:
            save(model, fault)


def save(model: torch.nn.Module, fault: str) -> None:
    state: dict[str, Any] = {"model": model.state_dict(), "step": SECOND, "kept": torch.ones(1 << 18)}
    path = Path("checkpoint.pt")
    if fault == "full":
        libc = ctypes.CDLL(None, use_errno=True)
        path = Path("disk", path)
        path.parent.mkdir()
        # The mount is this process's own, and goes with it.
        assert libc.unshare(0x20000) == 0, os.strerror(ctypes.get_errno())
        assert libc.mount(None, b"/", None, 0x44000, None) == 0, os.strerror(ctypes.get_errno())
        done = libc.mount(b"tmpfs", bytes(path.parent), b"tmpfs", 0, b"size=256k")
        assert done == 0, os.strerror(ctypes.get_errno())
    if fault in ("full", "truncated"):
        say(f"INFO saving checkpoint to {path}")
        torch.save(state, path)
    if fault == "truncated":
        os.truncate(path, path.stat().st_size // 2)
        say(f"INFO resuming from {path}")
        torch.load(path)


def main() -> None:
    fault = sys.argv[1]
    if fault == "refused":
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            dist.TCPStore("127.0.0.1", closed.getsockname()[1], 2, False, timedelta(seconds=2))
    if fault == "name":
        dist.TCPStore("gpu-1.nowhere.invalid", 29500, 2, False, timedelta(seconds=2))
    if fault == "world":
        meet(WORLD + 1)
    if fault == "memory":
        Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
        say("INFO step 1 loss 0.7131")
        kept = [b"x" * (1 << 20) for _ in range(1024)]
        say(f"INFO kept {len(kept)} MB")
    if fault == "desynchronised":
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    if WORLD > 1:
        meet()
    train(fault)


if __name__ == "__main__":
    main()
