"""Bandwidth between two nodes over one rail: RDMA writes where both have RDMA there, TCP else."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from policies.fabric import PairTest
from spec.plan import ClusterPlan, Node
from spec.plan.thresholds import pair_floor
from validation.fabric import iperf, perftest
from validation.fabric.perftest import Port
from validation.transport import Transport, Unreachable

START_S = 60.0
"""How long the client goes on trying until the server listens: a login to an emulated machine takes seconds, and many
on a computer that has others to run."""
LIMIT_S = 90.0

Figure: TypeAlias = tuple[float | None, str]
"""Gb/s, or none and why."""


async def measure_pair(
    transport: Transport, plan: ClusterPlan, a: Node, b: Node, rail: int, ports: Mapping[str, Port]
) -> PairTest:
    """The worse direction between two nodes over one rail. Never raises on what the nodes say.

    Args: `ports`, the RDMA ports that nodes were found to have on this rail, by node. A rail that shall carry RDMA on
    both nodes is never measured with anything else.
    """
    plane = f"rail-{rail}"
    verbs = all(port is not None and port.rdma for port in (a.interface(plane), b.interface(plane)))
    tool, measure = (perftest.TOOL, _rdma) if verbs else (iperf.TOOL, _tcp)
    try:
        gbps, reason = await measure(transport, plan, a, b, plane, ports)
    except TimeoutError:
        gbps, reason = None, f"no result within {LIMIT_S + 10:g} s"
    except (Unreachable, OSError) as gone:
        gbps, reason = None, str(gone)
    floor = pair_floor(plan)
    return PairTest(a=a.name, b=b.name, rail=rail, gbps=gbps, floor_gbps=floor.gbps, tool=tool, reason=reason)


async def _tcp(transport: Transport, plan: ClusterPlan, a: Node, b: Node, plane: str, _: Mapping[str, Port]) -> Figure:
    """Both directions at once."""
    here, there, port = str(a.address(plane)), str(b.address(plane)), _job_port(plan)
    server, client = iperf.server(there, port), iperf.client(there, port, here)
    return await _meet(transport, (b.name, server), (a.name, client), iperf.read, iperf.EARLY)


async def _rdma(
    transport: Transport, plan: ClusterPlan, a: Node, b: Node, plane: str, ports: Mapping[str, Port]
) -> Figure:
    """One direction after the other."""
    missing = [node.name for node in (a, b) if node.name not in ports]
    if missing:
        return None, f"no RDMA port is known on {plane} of {' and '.join(missing)}"
    worst: float | None = None
    for sender, receiver in ((a, b), (b, a)):
        tcp = _job_port(plan)
        server = perftest.server(ports[receiver.name], tcp)
        client = perftest.client(ports[sender.name], tcp, str(receiver.address(plane)))
        ends = ((receiver.name, server), (sender.name, client))
        gbps, reason = await _meet(transport, *ends, perftest.read, perftest.EARLY)
        if gbps is None:
            return None, f"{sender.name} to {receiver.name}: {reason}"
        worst = gbps if worst is None else min(worst, gbps)
    return worst, ""


def _job_port(plan: ClusterPlan) -> str:
    """One of the ports that the firewall lets in on rails, at random: tests of many pairs run at once."""
    ports = plan.spec.networks.fabric.job_ports
    return str(ports.first + secrets.randbelow(len(ports)))


async def _meet(
    transport: Transport,
    server: tuple[str, Sequence[str]],
    client: tuple[str, Sequence[str]],
    read: Callable[[bytes, bytes], Figure],
    early: str,
) -> Figure:
    """The client's figure, or why there is none. It tries again while nobody listens yet, which `early` tells."""
    limit = ["timeout", "--kill-after=5", f"{LIMIT_S:g}"]
    name, argv = server
    serving = asyncio.create_task(transport.run(name, [*limit, *argv], timeout=LIMIT_S + 10))
    name, argv = client
    loop = asyncio.get_running_loop()
    end = loop.time() + START_S
    try:
        async with asyncio.timeout(LIMIT_S + 10):
            while True:
                done = await transport.run(name, [*limit, *argv], timeout=LIMIT_S + 10)
                gbps, reason = read(done.stdout, done.stderr)
                if early not in reason or loop.time() > end or serving.done():
                    return gbps, reason
                await asyncio.sleep(0.5)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
