"""The job itself: what each rank runs on its node. Needs Python 3.11 and torch, nothing of Muster.

Rank, world size and rendezvous come from the environment as torchrun sets them; the work is one JSON object in the
variable MUSTER_WORK: {"backend": "nccl" or "gloo", "ops": [...], "sizes": [...], "repeats": n, "calls": n,
"limit_s": s}. Each rank prints JSON lines: a `start` record, on rank 0 a `point` record for each operation, size and
repeat, and last an `end` record, without which the run did not finish. Times are those of the slowest rank.

Results are exact: buffers hold small integers whose sums float32 represents (below 2^24), so that the order of
additions cannot matter, and every element is compared with the closed form.
"""

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

MODULUS = 1021
"""Prime, so that no power-of-two shift maps data on itself; 16,000 ranks sum to below 2^24, exact in float32."""


def emit(kind: str, **fields: Any) -> None:
    """Prints one record."""
    sys.stdout.write(json.dumps({"record": kind, **fields}) + "\n")
    sys.stdout.flush()


def pattern(rank: int, count: int, device: torch.device) -> torch.Tensor:
    """Rank's data: integers below MODULUS that depend on rank and position."""
    return ((torch.arange(count, device=device, dtype=torch.int64) * 31 + rank * 17) % MODULUS).to(torch.float32)


class Collective:
    """One operation with its buffers. `size` is nccl-tests' S: the larger of bytes sent and received by a rank."""

    def __init__(self, op: str, size: int, device: torch.device) -> None:
        self.op, self.device = op, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        count = max(1, size // 4)
        if op == "all_gather":
            count = max(1, count // self.world)
            self.size = count * self.world * 4
            self.gathered = [torch.empty(count, device=device) for _ in range(self.world)]
        else:
            self.size = count * 4
        self.source = pattern(self.rank, count, device)
        self.buffer = self.source.clone()

    def reset(self) -> None:
        """Puts the input back: in-place operations overwrite it."""
        self.buffer.copy_(self.source)
        if self.op == "all_gather":
            for each in self.gathered:
                each.fill_(-1)
        elif self.op == "broadcast" and self.rank != 0:
            self.buffer.fill_(-1)

    def call(self) -> None:
        """Runs the operation once, on whatever the buffer holds."""
        if self.op == "all_reduce":
            dist.all_reduce(self.buffer)
        elif self.op == "all_gather":
            dist.all_gather(self.gathered, self.buffer)
        else:
            dist.broadcast(self.buffer, src=0)

    def wrong(self) -> int:
        """Elements that differ from the exact result of one call on the input."""
        count = len(self.buffer)
        if self.op == "all_gather":
            pairs = [(got, pattern(rank, count, self.device)) for rank, got in enumerate(self.gathered)]
        elif self.op == "all_reduce":
            total = torch.zeros(count, device=self.device)
            for rank in range(self.world):
                total += pattern(rank, count, self.device)
            pairs = [(self.buffer, total)]
        else:
            pairs = [(self.buffer, pattern(0, count, self.device))]
        return sum(int((got != exact).sum().item()) for got, exact in pairs)


OPS = ("all_reduce", "all_gather", "broadcast")


def over_ranks(value: float, how: Any, device: torch.device) -> float:
    """A number combined over all ranks."""
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=how)
    return float(tensor.item())


def wait(device: torch.device) -> None:
    """Until the device has done what was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(op: str, size: int, calls: int, repeats: int, device: torch.device) -> None:
    """One operation at one size: a warm-up that is checked, then timed repeats, each checked again afterwards."""
    work = Collective(op, size, device)
    for repeat in range(repeats):
        work.reset()
        work.call()
        wait(device)
        wrong = work.wrong()
        work.reset()
        dist.barrier()
        wait(device)
        begin = time.perf_counter()
        for _ in range(calls):
            work.call()
        wait(device)
        seconds = over_ranks((time.perf_counter() - begin) / calls, dist.ReduceOp.MAX, device)
        total = int(over_ranks(float(wrong), dist.ReduceOp.SUM, device))
        if work.rank == 0:
            emit("point", op=op, size=work.size, repeat=repeat, seconds=seconds, wrong=total)


def main() -> int:
    """Runs the work that the environment names. Exit status 0 only if every rank got to the end."""
    work = json.loads(os.environ["MUSTER_WORK"])
    unknown = set(work["ops"]) - set(OPS)
    if unknown:
        sys.stderr.write(f"unknown operations: {', '.join(sorted(unknown))}; there are {', '.join(OPS)}\n")
        return 2
    backend = work["backend"]
    gpu = backend == "nccl"
    if gpu and not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} of {sys.executable} sees no GPU, and nccl needs one\n")
        return 2
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=timedelta(seconds=work["limit_s"]))
    rank = dist.get_rank()
    emit(
        "start",
        rank=rank,
        ranks=dist.get_world_size(),
        backend=backend,
        device=device.type,
        torch=torch.__version__,
        nccl=".".join(str(part) for part in torch.cuda.nccl.version()) if gpu else None,
    )
    for op in work["ops"]:
        for size in work["sizes"]:
            measure(op, size, work["calls"], work["repeats"], device)
    dist.barrier()
    emit("end", rank=rank)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
