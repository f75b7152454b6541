"""Compares a cluster with its spec and with what was certified, over three layers in one look."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pydantic import ValidationError

from muster.certify import Observed
from muster.standing import Standing
from policies.certificate import CertificateError, verify
from policies.drift import (
    Baseline,
    DriftReport,
    HostForecast,
    Present,
    ResourceForecast,
    TaskEffect,
    TaskForecast,
    compare,
    facts,
)
from policies.identity import IdentityError, identify
from policies.measurement import Examination
from policies.verdict import Verdict
from stacks.converge import Converged, Note

Say = Callable[[str], None]


def drift(
    cluster: Standing,
    seen: Observed,
    check: Converged | None,
    refresh: tuple[ResourceForecast, ...] | None,
) -> DriftReport:
    """The report of one look. Layers that were not looked at are none, and the report says so."""
    return compare(
        tuple(node.name for node in cluster.plan.nodes),
        certified(cluster),
        baselines(cluster),
        {name: present(each, seen.verdicts.get(name, ())) for name, each in seen.examinations.items()},
        forecasts(check) if check else None,
        refresh,
        datetime.now(UTC),
    )


def certified(cluster: Standing) -> dict[str, str | None]:
    """The identity that each node's certificate was issued to, by node; none where it does not verify."""
    trusted, now = cluster.trusted(), datetime.now(UTC)
    found: dict[str, str | None] = {}
    for name, envelope in cluster.envelopes().items():
        try:
            found[name] = verify(envelope, trusted, now, node=name, cluster=cluster.plan.name).identity
        except CertificateError:
            found[name] = None
    return found


def baselines(cluster: Standing) -> dict[str, Baseline]:
    """Certified nodes as they were when they were certified. One that cannot be read counts as none."""
    found = {}
    for name in cluster.envelopes():
        path = cluster.baseline(name)
        try:
            found[name] = Baseline.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue
    return found


def present(examination: Examination, verdicts: tuple[Verdict, ...]) -> Present:
    """A node as it was just examined."""
    try:
        return Present(identity=identify(examination), verdicts=verdicts, facts=facts(examination))
    except IdentityError as error:
        return Present(identity=None, identity_error=str(error), verdicts=verdicts, facts=facts(examination))


def forecasts(check: Converged) -> Mapping[str, HostForecast]:
    """What Ansible's check mode says of each host."""

    def tasks(notes: tuple[Note, ...], host: str, effect: TaskEffect) -> tuple[TaskForecast, ...]:
        return tuple(
            TaskForecast(task=f"{note.role} : {note.task}", effect=effect, detail=note.text[:300])
            for note in notes
            if note.host == host
        )

    found = {}
    for host in check.hosts:
        away = [note.text or "unreachable" for note in check.unreachable if note.host == host.name]
        found[host.name] = HostForecast(
            host=host.name,
            ok=max(0, host.ok - host.changed),
            tasks=(
                *tasks(check.changes, host.name, TaskEffect.CHANGE),
                *tasks(check.unknown, host.name, TaskEffect.UNKNOWN),
                *tasks(check.failures, host.name, TaskEffect.FAILED),
            ),
            unreachable=away[0] if away else None,
        )
    return found
