"""Replicas that should be equal to the last bit: whose is not, and which device computes otherwise than its like.

A device that silently errs leaves loss and gradients plausible. What shows it is comparison: of the parameters that
data parallelism keeps equal, every k steps, and of one seeded computation on devices of one model.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runtime.control import Control
from runtime.events import Tell, silence

CHUNK = 1 << 22
"""Elements that are summed at a time: 32 MiB of integers beside the model."""


class ReplicaConfig(BaseModel):
    """`every_steps`: how often the replicas' parameters are compared, which reads all of them once.
    `probe_every_steps`: how often every device does one seeded computation, whose results are compared, also at each
    start; it may take `probe_limit_s`. On a difference the job stops, for weights that have parted do not meet again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    every_steps: int | None = Field(default=None, ge=1)
    probe_every_steps: int | None = Field(default=None, ge=1)
    probe_limit_s: float = Field(default=60.0, gt=0)


class ReplicaError(Exception):
    """Replicas that should be equal are not, or devices that should compute alike do not."""


@dataclass(frozen=True)
class Odd:
    """Ranks whose digest is not that of the most. `certain` is false without a majority: any of them may err."""

    ranks: tuple[int, ...]
    certain: bool


def odd(keys: Sequence[str], digests: Sequence[str]) -> Odd | None:
    """Who differs, by rank, among those with the same key: replicas of one shard, or devices of one model. Pure."""
    ranks: list[int] = []
    certain = True
    for key in dict.fromkeys(keys):
        members = [rank for rank, each in enumerate(keys) if each == key]
        counts = Counter(digests[rank] for rank in members).most_common()
        if len(counts) == 1:
            continue
        if counts[0][1] * 2 > len(members):
            ranks += [rank for rank in members if digests[rank] != counts[0][0]]
        else:
            ranks += members
            certain = False
    return Odd(tuple(sorted(ranks)), certain) if ranks else None


def digest(tensors: Iterable[Any]) -> str:
    """A digest of the tensors' bits, computed where they are: sums of integers, weighted by position. Not for secrets.

    Equal bits give equal digests on any device; one flipped bit always gives another. Shards count by what is local.
    """
    import torch

    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        flat = local.detach().contiguous().view(-1)
        words = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
        total = torch.zeros((), dtype=torch.int64, device=words.device)
        for begin in range(0, len(words), CHUNK):
            part = words[begin : begin + CHUNK].to(torch.int64)
            # Odd weights: a difference in one word, times an odd number, is never 0 modulo 2^64.
            weights = torch.arange(begin, begin + len(part), device=part.device, dtype=torch.int64) * 2 + 1
            total += (part * weights).sum()
        found.update(f"{tuple(local.shape)} {local.dtype} {int(total)};".encode())
    return found.hexdigest()


def compare(control: Control, key: str, found: str, step: int, what: str, tell: Tell = silence) -> Odd | None:
    """Gathers every rank's digest and names those that differ; every rank has the same answer. Raises PeerLostError.

    Ranks whose key no other has are told: nothing is known of them.
    """
    told = [json.loads(each) for each in control.gather(json.dumps([key, found, control.place.node]).encode())]
    keys = [each[0] for each in told]
    if alone := [rank for rank, each in enumerate(keys) if keys.count(each) == 1]:
        tell("replica.not_compared", level="warning", what=what, step=step, ranks=alone)
    differing = odd(keys, [each[1] for each in told])
    if differing is not None:
        nodes = sorted({told[rank][2] for rank in differing.ranks})
        tell("replica.differs", what=what, step=step, ranks=differing.ranks, nodes=nodes, certain=differing.certain)
    return differing


def probe(device: Any, size: int = 1024, rounds: int = 4, seed: int = 20_240_229) -> tuple[str, str]:
    """The device's model and the digest of a seeded computation on it: to `compare` among devices of the same model.

    Matrix products in float32 and bfloat16 whose result feeds the next: about 2·rounds·2·size^3 operations.
    """
    import torch

    device = torch.device(device)
    # Made on the host, so that only what is probed computes on the device.
    start = torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) / size**0.5
    results = []
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            fixed = current = start.to(device, dtype)
            for _ in range(rounds):
                current = torch.nn.functional.normalize(current @ fixed, dim=1)
            results.append(current)
    return model(device), digest(results)


def model(device: Any) -> str:
    """What two devices must have in common to give the same bits: the processor's name, and how it divides work."""
    import torch

    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return f"{found.name}, {found.multi_processor_count} multiprocessors"
    # Another instruction set or number of threads sums in another order.
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    capability, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return f"{names[0].partition(': ')[2] if names else 'processor'}, {capability}, {threads} threads"
