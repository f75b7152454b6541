"""Keeps the pool as the certificates say: opens who holds one, closes who does not."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.console import Problem
from muster.standing import Standing
from policies.certificate import CertificateError, Expired, verify
from policies.identity import IdentityError, identify
from policies.measurement import Examination
from pool.decision import Credential, PoolNode, decide_all
from pool.decision import Standing as Right
from pool.slurm import Applied, PoolError, SlurmPool
from spec.plan import time_server
from spec.schema import Role, Scheduler
from validation.transport import Unreachable


@dataclass(frozen=True)
class _Completed:
    returncode: int
    stdout: str
    stderr: str


class _ControlNode:
    """Runs the scheduler's commands on the control node, each over a connection of its own."""

    def __init__(self, cluster: Standing) -> None:
        self._cluster = cluster
        self._node = time_server(cluster.plan).name

    def __call__(self, argv: Sequence[str], timeout: float) -> _Completed:
        try:
            done = asyncio.run(self._cluster.transport().run(self._node, argv, timeout=timeout))
        except Unreachable as error:
            raise OSError(f"{self._node}: {error}") from None
        if done.limit:
            raise TimeoutError(done.limit)
        status = done.status if done.status is not None else 1
        return _Completed(status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def pool_of(cluster: Standing) -> SlurmPool:
    """The cluster's pool. Raises Problem where its scheduler is one that Muster does not serve yet."""
    scheduler = cluster.plan.spec.pool.scheduler
    if scheduler is not Scheduler.SLURM:
        raise Problem(f"pool.scheduler: {scheduler.value} cannot be opened and closed yet; slurm can")
    return SlurmPool(_ControlNode(cluster))


def credentials(
    cluster: Standing, why: Mapping[str, str], examinations: Mapping[str, Examination] | None = None
) -> dict[str, Credential]:
    """What each compute node has to show now.

    Args: `why` says of nodes without a certificate what kept or took it from them; `examinations`, where given, are
    recent: a certificate for other hardware than a node has now is void.
    """
    envelopes, trusted, now = cluster.envelopes(), cluster.trusted(), datetime.now(UTC)
    refusals = cluster.refusals()
    found = {}
    for node in cluster.plan.with_role(Role.COMPUTE):
        envelope = envelopes.get(node.name)
        if envelope is None:
            right = Right.REVOKED if node.name in why else Right.NONE
            found[node.name] = Credential(right, text=why.get(node.name, ""))
            continue
        try:
            seen = (examinations or {}).get(node.name)
            identity = identify(seen).digest if seen and seen.complete else None
            held = verify(
                envelope,
                trusted,
                now,
                node=node.name,
                identity=identity,
                cluster=cluster.plan.name,
                spec=cluster.plan.digest,
                pins=cluster.pins.digest,
                image=cluster.deployment.images.get(node.name),
                refused=refusals.get(node.name),
            )
        except Expired:
            found[node.name] = Credential(Right.EXPIRED)
        except (CertificateError, IdentityError) as error:
            found[node.name] = Credential(Right.REVOKED, text=str(error))
        else:
            began = min(held.issued, seen.started) if seen and seen.complete else held.issued
            found[node.name] = Credential(Right.VALID, examined=began)
    return found


def pool_nodes(cluster: Standing) -> dict[str, PoolNode]:
    """Every node of the pool by name. Raises Problem where the scheduler does not tell."""
    try:
        return pool_of(cluster).nodes()
    except PoolError as error:
        raise Problem(str(error)) from None


def unusable(cluster: Standing) -> dict[str, str]:
    """Why the scheduler would start no job on a compute node now, by its name. Raises Problem where it does not say."""
    known = pool_nodes(cluster)
    found = {}
    for node in cluster.plan.with_role(Role.COMPUTE):
        there = known.get(node.name)
        if there is None:
            found[node.name] = "the scheduler does not know it"
        elif there.closed:
            found[node.name] = f"by {there.closer.value}, {there.reason or 'without a reason'}"
        elif not there.ready:
            found[node.name] = f"it is {there.state}"
    return found


def admit(
    cluster: Standing, why: Mapping[str, str], examinations: Mapping[str, Examination] | None = None
) -> tuple[dict[str, PoolNode], tuple[Applied, ...]]:
    """Opens and closes nodes; returns all nodes as they are afterwards, and what was done. Raises Problem."""
    pool = pool_of(cluster)
    try:
        before = pool.nodes()
        done = pool.apply(decide_all(before, credentials(cluster, why, examinations)))
    except (PoolError, LookupError) as error:
        raise Problem(str(error)) from None
    return {**before, **{each.now.name: each.now for each in done if each.now}}, done
