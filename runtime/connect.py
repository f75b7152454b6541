"""Joins this process to its peers, before the model is made."""

import random
from datetime import timedelta

from runtime.failures import recorder
from runtime.failures.emergency import after
from runtime.place import Place, place
from runtime.stops.leave import leave
from runtime.stops.signals import watch
from runtime.telemetry import Telemetry, TelemetryConfig


def connect(backend: str | None = None, limit_s: float = 600.0, seed: int | None = None) -> Place:
    """Watches for signals, takes this rank's device, and joins the process group where there are several ranks.

    Args: backend, of torch.distributed, by default NCCL for tensors on GPUs and gloo for those on the host, or gloo
    alone without a GPU; limit_s, how long joining and each collective may take; seed, for the initial weights: the same
    on every rank. Leaves with the exit code of the failure where the others cannot be reached.
    """
    watch()
    import torch
    import torch.distributed as dist

    here = place()
    recorder.prepare()
    if torch.cuda.is_available():
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
    if seed is not None:
        random.seed(seed)
        torch.manual_seed(seed)
    if here.world > 1 and not dist.is_initialized():
        chosen = backend or ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        limit = timedelta(seconds=limit_s)
        try:
            dist.init_process_group(chosen, rank=here.rank, world_size=here.world, timeout=limit)
        except Exception as error:
            telemetry = Telemetry(TelemetryConfig(), here)
            exit = after(error, tell=telemetry)
            telemetry.close()
            leave(exit)
    return here
