"""Bandwidth between two nodes over one rail, with iperf3 in both directions at once."""

import asyncio
import json
import secrets
from math import isfinite

from policies.fabric import PairTest
from spec.plan import ClusterPlan, Node
from spec.plan.thresholds import pair_floor
from validation.transport import Transport, Unreachable

TOOL = "iperf3"
SECONDS = 2
"""How long a test sends."""
START_S = 20.0
"""How long the client goes on trying until the server listens: a login to an emulated machine takes seconds."""
LIMIT_S = 60.0


async def measure_pair(transport: Transport, plan: ClusterPlan, a: Node, b: Node, rail: int) -> PairTest:
    """The worse direction between two nodes over one rail. Never raises on what the nodes say."""
    plane = f"rail-{rail}"
    here, there = str(a.address(plane)), str(b.address(plane))
    ports = plan.spec.networks.fabric.job_ports
    port = str(ports.first + secrets.randbelow(len(ports)))
    limit = ["timeout", "--kill-after=5", f"{LIMIT_S:g}", TOOL]
    server = asyncio.create_task(
        transport.run(b.name, [*limit, "-s", "-1", "-B", there, "-p", port], timeout=LIMIT_S + 10)
    )
    ask = [*limit, "-c", there, "-B", here, "-p", port, "-t", str(SECONDS), "-J", "--bidir"]
    gbps, reason = None, ""
    try:
        async with asyncio.timeout(LIMIT_S + 10):
            gbps, reason = await _ask(transport, a.name, ask, server)
    except Unreachable as gone:
        reason = str(gone)
    except TimeoutError:
        reason = f"no result within {LIMIT_S + 10:g} s"
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    floor = pair_floor(plan)
    return PairTest(a=a.name, b=b.name, rail=rail, gbps=gbps, floor_gbps=floor.gbps, tool=TOOL, reason=reason)


async def _ask(transport: Transport, name: str, argv: list[str], server: asyncio.Task) -> tuple[float | None, str]:  # type: ignore[type-arg]
    """The client's figure, or why there is none. Tries again while nobody listens yet."""
    end = asyncio.get_running_loop().time() + START_S
    while True:
        done = await transport.run(name, argv, timeout=LIMIT_S + 10)
        gbps, reason = read_iperf3(done.stdout)
        early = "Connection refused" in reason and asyncio.get_running_loop().time() < end
        if not early or server.done():
            return gbps, reason
        await asyncio.sleep(0.5)


def read_iperf3(output: bytes) -> tuple[float | None, str]:
    """Gb/s of the worse direction as the receivers counted it, or none and why."""
    try:
        said = json.loads(output)
        if error := said.get("error"):
            return None, f"iperf3: {str(error)[:200]}"
        end = said["end"]
        rates = [end[key]["bits_per_second"] for key in ("sum_received", "sum_received_bidir_reverse")]
        worst = min(float(rate) for rate in rates) / 1e9
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, "iperf3 gave no whole result"
    return (worst, "") if isfinite(worst) and worst >= 0 else (None, "iperf3 gave no finite number")
