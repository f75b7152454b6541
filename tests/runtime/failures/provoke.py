"""Failures that happen for real, each a function that runs in every rank of a job: python provoke.py FAILURE

What a function raises is classified where it was raised, and written to `failure.RANK`; the rank ends with the code
that follows.
"""

import json
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

from runtime.failures.classify import classify
from runtime.failures.emergency import after
from runtime.place import place


def _meet(rank: int, world: int, folder: Path, limit_s: float = 10.0) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", timedelta(seconds=limit_s), world_size=world, rank=rank)


def peer_killed_in_a_collective(rank: int, world: int, folder: Path) -> None:
    _meet(rank, world, folder)
    dist.all_reduce(torch.ones(4))
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        dist.all_reduce(torch.ones(1 << 16))


def peer_that_does_not_come(rank: int, world: int, folder: Path) -> None:
    _meet(rank, world, folder, 1.0)
    if rank == world - 1:
        time.sleep(3)
        return
    dist.all_reduce(torch.ones(4))


def store_that_goes(rank: int, world: int, folder: Path) -> None:
    port = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=10), wait_for_workers=False)
        port.with_suffix(".tmp").write_text(str(store.port))
        port.with_suffix(".tmp").rename(port)
        store.wait(["joined"])
        os.kill(os.getpid(), signal.SIGKILL)
    while not port.exists():
        time.sleep(0.01)
    store = dist.TCPStore("127.0.0.1", int(port.read_text()), 2, False, timedelta(seconds=10))
    store.set("joined", "1")
    store.get("never")


def refused_port(rank: int, world: int, folder: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dist.TCPStore("127.0.0.1", closed.getsockname()[1], 2, False, timedelta(seconds=1))


def taken_port(rank: int, world: int, folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        dist.TCPStore("127.0.0.1", taken.getsockname()[1], 2, True, timedelta(seconds=1))


def wrong_host_name(rank: int, world: int, folder: Path) -> None:
    dist.TCPStore("nowhere.invalid", 29500, 2, False, timedelta(seconds=1))


def mismatched_world_size(rank: int, world: int, folder: Path) -> None:
    _meet(rank, world + 1, folder, 1.0)


def desynchronised_sizes(rank: int, world: int, folder: Path) -> None:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    _meet(rank, world, folder, 5.0)
    dist.all_reduce(torch.ones(4 + rank))


def desynchronised_operations(rank: int, world: int, folder: Path) -> None:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    _meet(rank, world, folder, 5.0)
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    else:
        dist.broadcast(torch.ones(4), 0)


def desynchronised_without_debugging(rank: int, world: int, folder: Path) -> None:
    _meet(rank, world, folder, 2.0)
    dist.all_reduce(torch.ones(4 if rank == 0 else 1 << 20))


class Broken(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Fails as it is told."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "closed":
            raise ConnectionResetError(104, "Connection reset by peer")
        return {}[index]  # type: ignore[no-any-return]


def bad_sample_in_a_worker(rank: int, world: int, folder: Path) -> None:
    next(iter(torch.utils.data.DataLoader(Broken("key"), num_workers=1)))


def data_source_lost_in_a_worker(rank: int, world: int, folder: Path) -> None:
    next(iter(torch.utils.data.DataLoader(Broken("closed"), num_workers=1)))


def worker_killed(rank: int, world: int, folder: Path) -> None:
    next(iter(torch.utils.data.DataLoader(Broken("killed"), num_workers=1)))


def full_disk(rank: int, world: int, folder: Path) -> None:
    with Path("/dev/full").open("w") as file:
        file.write("x" * (1 << 20))


def truncated_checkpoint(rank: int, world: int, folder: Path) -> None:
    path = folder / "model.pt"
    torch.save({"weight": torch.ones(1000)}, path)
    os.truncate(path, path.stat().st_size // 2)
    torch.load(path)


def empty_checkpoint(rank: int, world: int, folder: Path) -> None:
    (folder / "model.pt").touch()
    torch.load(folder / "model.pt")


def truncated_safetensors(rank: int, world: int, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file({"weight": torch.ones(1000)}, path)
    os.truncate(path, 100)
    load_file(path)


class Mean:
    """What a checkpoint from elsewhere may hold."""

    def __reduce__(self) -> Any:
        return print, ("run",)


def checkpoint_with_code(rank: int, world: int, folder: Path) -> None:
    torch.save(Mean(), folder / "model.pt")
    torch.load(folder / "model.pt", weights_only=True)


def checkpoint_of_another_model(rank: int, world: int, folder: Path) -> None:
    torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(3, 2, bias=False).state_dict())


def address_space_exhausted(rank: int, world: int, folder: Path) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    torch.ones(4 << 30)


def program_error(rank: int, world: int, folder: Path) -> None:
    raise KeyError("NCCL error: connection reset by peer, CUDA out of memory")


def main() -> None:
    here = place()
    try:
        globals()[sys.argv[1]](here.rank, here.world, Path.cwd())
    except BaseException as error:
        failure = classify(error)
        told = {"kind": failure.kind, "text": str(error)[:2000], "by": failure.decided_by}
        Path(f"failure.{here.rank}").write_text(json.dumps(told))
        os._exit(int(after(error)))
    os._exit(0)


if __name__ == "__main__":
    main()
