"""Examines nodes: sends each the suite and what is expected of it, and reads what it tells. All nodes at once."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue, ValidationError

from policies.measurement import Examination, Measurement
from spec.deployment import Deployment
from spec.plan import ClusterPlan, Expectations, Node, expectations
from spec.schema import MachineKind
from validation import suite
from validation.node.stream import read
from validation.transport import TIMEOUT_S, Completed, Ssh, Transport, Unreachable, put

FOLDER = "/var/cache/muster"
"""Where a node keeps the suite: a folder that only root writes."""

SUITE_S = 150.0
"""Seconds that the suite may take on a node; it ends by itself then, with what it has."""

PATIENCE = {MachineKind.VM: 8.0}
"""How many times as long a kind of machine may take: a lab's virtual machines may be emulated."""

GRACE_S = 60.0
"""Seconds on top of that, for the login and the way back."""

NOT_THERE = 67

RUN = f"""
printf '%s  %s\\n' "$2" "$1" | sha256sum --check --status 2>/dev/null || exit {NOT_THERE}
exec python3 -ISB "$1"
"""
"""Runs the suite if the file is what it should be: isolated from the node's own Python packages and settings."""

ExpectationsOf = Callable[[ClusterPlan, Node], Expectations]


def _quiet(line: str) -> None:
    """Nobody wants to know."""


def examine(
    plan: ClusterPlan,
    deployment: Deployment,
    nodes: Sequence[str],
    say: Callable[[str], None] = _quiet,
    **options: object,
) -> dict[str, Examination]:
    """Examines nodes of a deployment over its ssh configuration. Options are those of `examine_nodes`.

    Returns an examination for each node that was asked for, in that order, whatever happened to it.
    Raises ValueError where no node is asked for or one twice, LookupError where one is not part of the deployment.
    """
    strange = sorted(set(nodes) - set(deployment.nodes))
    if strange:
        raise LookupError(f"{', '.join(strange)} is not part of {deployment.name}; run `pulumi up` or leave it out")

    async def work() -> dict[str, Examination]:
        return await examine_nodes(plan, Ssh(deployment.ssh_config), nodes, say, **options)  # type: ignore[arg-type]

    return asyncio.run(work())


async def examine_nodes(
    plan: ClusterPlan,
    transport: Transport,
    nodes: Sequence[str],
    say: Callable[[str], None] = _quiet,
    *,
    expectations_of: ExpectationsOf = expectations,
    only: Sequence[str] | None = None,
    limit_s: float = SUITE_S,
    folder: str = FOLDER,
) -> dict[str, Examination]:
    """Examines nodes over a transport, all in one wave.

    Args: `say` gets a line as each node is done; `expectations_of` gives what a node is told; `only` names the
    measures to take instead of all; `limit_s` seconds for the suite on each node; `folder` on the nodes for the suite.
    Raises ValueError where no node is asked for or one twice, LookupError where one is not in the plan.
    """
    if not nodes:
        raise ValueError("there is no node to examine; name at least one")
    if len(set(nodes)) != len(nodes):
        raise ValueError("a node is named twice; name each once")
    planned = [plan.node(name) for name in nodes]
    file = await asyncio.to_thread(suite.build)
    content, digest = file.read_bytes(), file.stem
    path = f"{folder}/suite-{digest}.pyz"
    argv = [*transport.as_root, "sh", "-c", RUN, "suite", path, digest]
    chosen: dict[str, JsonValue] = {"only": list(only)} if only else {}
    done = 0

    async def one(node: Node) -> Examination:
        nonlocal done
        patience = PATIENCE.get(node.machine, 1.0)
        options = {"limit_s": limit_s * patience, "patience": patience, **chosen}
        request = {"node": node.name, "expectations": expectations_of(plan, node), "options": options}
        started = _now()

        async def ask() -> Completed:
            return await transport.run(node.name, argv, json.dumps(request).encode(), (limit_s + GRACE_S) * patience)

        try:
            answer = await ask()
            if answer.status == NOT_THERE:
                await put(transport, node.name, content, path, TIMEOUT_S * patience)
                answer = await ask()
            examination = interpret(node.name, answer, digest, started, _now())
        except (Unreachable, OSError) as error:
            examination = _nothing(node.name, digest, started, unreachable=str(error)[:2000])
        done += 1
        say(f"{node.name} {summary(examination)} · {done} of {len(nodes)}")
        return examination

    found = await asyncio.gather(*(one(node) for node in planned))
    return {each.node: each for each in found}


def interpret(node: str, answer: Completed, digest: str, started: datetime, finished: datetime) -> Examination:
    """The examination in what a node answered. Pure; never raises: what is not to be believed is left out, and says so.

    Times are the controller's: a node's own clock is one of the things examined.
    """
    stream = read(answer.stdout)
    if stream.header is None:
        why = stream.fault if answer.stdout else f"the suite ended with {answer.status}: {answer.last_words()}"
        return _nothing(node, digest, started, fault=why)
    fault = stream.fault
    if stream.header.get("node") != node:
        return _nothing(node, digest, started, fault=f"{str(stream.header.get('node'))[:60]!r} answered instead")
    measurements: list[Measurement] = []
    for record in stream.measurements:
        try:
            measurements.append(Measurement.model_validate(record))
        except ValidationError as error:
            fault = fault or f"{str(record.get('measure'))[:80]!r} is not a measurement: {_first(error)}"
    twice = sorted({each.measure for each in measurements if _count(measurements, each.measure) > 1})
    if twice:
        fault = fault or f"{twice[0]} was told twice"
    if fault and answer.limit:
        fault = f"{answer.limit}; {fault}"
    identity = stream.header.get("identity")
    try:
        return Examination(
            node=node,
            started=started,
            finished=finished if fault is None else None,
            complete=fault is None,
            suite_digest=digest,
            identity=identity if isinstance(identity, dict) else {},
            measurements=tuple(measurements),
            fault=fault[:2000] if fault else None,
        )
    except ValidationError as error:
        return _nothing(node, digest, started, fault=f"its identity is not to be believed: {_first(error)}")


def summary(examination: Examination) -> str:
    """An examination in a few words, for a line of progress."""
    if examination.unreachable:
        return f"unreachable: {examination.unreachable}"
    outcomes = [each.outcome.value for each in examination.measurements]
    parts = [f"{outcomes.count(each)} {each}" for each in ("measured", "unmeasurable", "error") if each in outcomes]
    return ", ".join(parts or ["nothing measured"]) + (
        f"; incomplete: {examination.fault}" if examination.fault else ""
    )


def _nothing(
    node: str, digest: str, started: datetime, *, unreachable: str | None = None, fault: str | None = None
) -> Examination:
    return Examination(
        node=node,
        started=started,
        finished=None,
        complete=False,
        suite_digest=digest,
        identity={},
        measurements=(),
        unreachable=unreachable,
        fault=fault[:2000] if fault else None,
    )


def _count(measurements: Sequence[Measurement], name: str) -> int:
    return sum(each.measure == name for each in measurements)


def _first(error: ValidationError) -> str:
    told: Mapping[str, object] = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, told['loc']))}: {told['msg']}"[:300]  # type: ignore[call-overload]


def _now() -> datetime:
    return datetime.now(UTC)
