"""Starts the NCCL job on every node at once and reads what its ranks say."""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from importlib.resources import files

from policies.fabric import REPEATS, Sweep
from spec.deployment import CertificateClass, Deployment
from spec.plan import ClusterPlan, Node
from spec.plan.thresholds import nccl_floor
from validation.nccl.sweep import Asked, Backend, Stream, sweeps
from validation.transport import Transport, Unreachable

MIB = 1024**2
OPS = ("all_reduce", "all_gather", "broadcast")
SIZES = {
    "gloo": (64 * 1024, MIB, 4 * MIB, 8 * MIB, 16 * MIB),
    "nccl": (MIB, 64 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB),
}
PLATEAU = {"gloo": 4 * MIB, "nccl": 1024 * MIB}
"""Bytes from which a message is large: over TCP beyond any socket buffer; 1 GiB as nccl-tests' authors advise."""
ALGORITHM = {"gloo": {}, "nccl": {"NCCL_ALGO": "Ring"}}
"""What the floor is derived for: between two nodes a tree exceeds the NICs' rate (nccl-tests#196) and hides a lost
rail."""
CALLS = {"gloo": 2, "nccl": 20}
LIMIT_S = {"gloo": 240.0, "nccl": 900.0}
"""How long one launch may take: torch alone takes 19 s to import on an emulated machine."""
ATTEMPTS = 2
"""Launches of a job that never came up: a rendezvous port may be taken, and that is no fault of the fabric's."""


def backend_of(deployment: Deployment) -> Backend:
    """`gloo` in the lab, whose GPUs are simulated; else `nccl`."""
    return "gloo" if deployment.certificate_class is CertificateClass.LAB else "nccl"


async def run_job(
    transport: Transport, plan: ClusterPlan, nodes: Sequence[Node], backend: Backend
) -> tuple[Sweep, ...]:
    """Sweeps of every operation: one for each rail with gloo, which has one interface a process; with NCCL one for
    all rails together.

    Needs at least two nodes; with fewer there is nothing between nodes to measure, and the answer is empty.
    """
    if len(nodes) < 2:
        return ()
    fabric = plan.spec.networks.fabric
    rails: list[int | None] = [*range(fabric.rails)] if backend == "gloo" else [None]
    found: list[Sweep] = []
    for rail in rails:
        floor = nccl_floor(plan, backend)
        asked = Asked(
            backend=backend,
            ops=OPS,
            sizes=SIZES[backend],
            repeats=REPEATS,
            rail=rail,
            floors=dict.fromkeys(OPS, floor.gigabytes),
            floor_source=floor.source,
            plateau_from=PLATEAU[backend],
        )
        found += await _sweeps(transport, plan, nodes, backend, asked)
    return tuple(found)


async def _sweeps(
    transport: Transport, plan: ClusterPlan, nodes: Sequence[Node], backend: Backend, asked: Asked
) -> tuple[Sweep, ...]:
    result: tuple[Sweep, ...] = ()
    for _ in range(ATTEMPTS):
        streams = await _launch(transport, plan, nodes, backend, asked)
        result = sweeps(asked, streams)
        if any('"record": "point"' in stream.output for stream in streams):
            break
    return result


async def _launch(
    transport: Transport, plan: ClusterPlan, nodes: Sequence[Node], backend: Backend, asked: Asked
) -> list[Stream]:
    ports = plan.spec.networks.fabric.job_ports
    port = ports.first + secrets.randbelow(len(ports))
    own = [node.gpus.count if backend == "nccl" and node.gpus else 1 for node in nodes]
    work = {
        "backend": asked.backend,
        "ops": asked.ops,
        "sizes": asked.sizes,
        "repeats": asked.repeats,
        "calls": CALLS[backend],
        "limit_s": LIMIT_S[backend] / 2,
    }
    variables = {
        **plan.job.variables,
        **ALGORITHM[backend],
        "MASTER_ADDR": str(nodes[0].address(f"rail-{asked.rail or 0}")),
        "MASTER_PORT": str(port),
        "MUSTER_WORK": json.dumps(work),
    }
    if asked.rail is not None:
        variables["GLOO_SOCKET_IFNAME"] = f"rail{asked.rail}"
    places = [(node.name, local) for node, ranks in zip(nodes, own, strict=True) for local in range(ranks)]
    return await start(transport, places, variables, LIMIT_S[backend])


async def start(
    transport: Transport, places: Sequence[tuple[str, int]], variables: Mapping[str, str], limit_s: float
) -> list[Stream]:
    """Runs one rank at each place, all at once, and gives what each said.

    Args: a place is a node's name and the rank's number on it, in the order of ranks; `variables` are the same for
    all ranks: the rendezvous and the work. Raises nothing for a node that cannot be reached, or where no process can
    be started to reach it: its stream says so.
    """
    source = files("validation.nccl").joinpath("job.py").read_bytes()

    async def rank(number: int, node: str, local: int) -> Stream:
        own = {"WORLD_SIZE": str(len(places)), "RANK": str(number), "LOCAL_RANK": str(local)}
        argv = ["env", *(f"{name}={value}" for name, value in {**variables, **own}.items())]
        argv += ["timeout", "--kill-after=5", f"{limit_s:g}", "python3", "-I", "-"]
        try:
            done = await transport.run(node, argv, stdin=source, timeout=limit_s + 30)
        except (Unreachable, OSError) as gone:
            return Stream(node=node, rank=number, output="", problem=str(gone))
        problem = None if done.status == 0 else f"exit status {done.status}: {done.last_words()}"
        return Stream(node=node, rank=number, output=done.stdout.decode(errors="replace"), problem=problem)

    return list(await asyncio.gather(*(rank(number, *place) for number, place in enumerate(places))))
