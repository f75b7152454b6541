"""What nodes did to jobs before: incidents, of which node, how often, and what that says of the node. Pure.

An incident holds nothing that the job's user wrote: its words are those of our rules, so that no log line of one user
is shown to another, and nobody can write into what an operator reads.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from policies.reading import read
from validation.diagnose.allocation import NODE, Allocation, short
from validation.diagnose.finding import Before, Diagnosis
from validation.diagnose.kinds import KINDS, Confidence, Retry
from validation.diagnose.rule import Rule

MOST_SHOWN = 100
"""Incidents of a node that an answer holds."""

MOST_RANKS = 10_000_000

_DECIDED = frozenset({"stop.cancelled", "stop.time_limit", "stop.preempted", "stop.done"})
"""Kinds that people or the scheduler decided: what Slurm then says names the job's first node, whatever it did."""

_GPU = re.compile(r"[0-9A-Za-z][0-9A-Za-z:._-]{0,63}")


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )


class Limits(_Model):
    """From when on incidents say something of a node: `history.yaml`."""

    days: Annotated[int, Field(ge=1, le=3650)]
    repeats: Annotated[int, Field(ge=2)]
    shared_nodes: Annotated[int, Field(ge=2)]
    times: Annotated[float, Field(gt=1)]


def load_limits() -> Limits:
    """Raises PolicyError."""
    return read(Path(__file__).with_suffix(".yaml"), Limits)


class Incident(_Model):
    """A job that died, and the node that its diagnosis names."""

    version: Literal["muster/incident/v1"] = "muster/incident/v1"
    node: Annotated[str, Field(pattern=f"^{NODE.pattern}$")]
    job: Annotated[str, Field(pattern=r"^\d{1,10}$")]
    user: Annotated[str, Field(pattern=r"^[\w.@+\\$-]{0,64}$")] = ""
    """Whose job says so: its logs are theirs."""
    start: AwareDatetime | None = None
    """Of this run of the job: it may have been requeued."""
    at: AwareDatetime
    """When it ended, by Slurm, or else when it was recorded: not later than that."""
    kind: str
    rule: str
    confidence: Confidence
    rank: Annotated[int, Field(ge=0, lt=MOST_RANKS)] | None = None
    gpu: Annotated[str, Field(pattern=f"^{_GPU.pattern}$")] | None = None
    """Its PCI address, or its number."""
    gpu_uuid: Annotated[str, Field(pattern=r"^GPU-[0-9a-f-]{1,60}$")] | None = None
    """Of the GPU that was at that address then; none where the node that recorded it was another one."""


class NothingToRecord(Exception):  # noqa: N818 - it is no error
    """A diagnosis that says nothing of a node, and why."""


class Refused(Exception):  # noqa: N818 - what is wrong and what to do, for a person
    """A diagnosis that is not recorded: what is wrong, what to do."""


def incident(told: Diagnosis, job: Allocation, now: datetime, rules: Mapping[str, Rule]) -> Incident:
    """What of a diagnosis goes into the history. Raises NothingToRecord, Refused.

    The diagnosis was made with the rights of the job's user, who may have made anything of it: kind, GPU and node count
    only where a rule of ours and Slurm know them.
    """
    cause = told.root_cause
    if cause.confidence is Confidence.UNKNOWN:
        raise NothingToRecord("the diagnosis names no cause")
    rule = rules.get(cause.rule or "")
    if rule is None or rule.kind != cause.kind or cause.kind not in KINDS:
        named = f"{cause.kind[:80]!r} by rule {str(cause.rule)[:80]!r}"
        raise Refused(f"{named} is none that is known · take the diagnosis and the history by the same Muster")
    if rule.kind in _DECIDED:
        raise NothingToRecord(f"{rule.title}: that says nothing of a node")
    gpu = cause.gpu if cause.gpu and _GPU.fullmatch(cause.gpu) else None
    return Incident(
        node=_node(cause.node, job.nodes),
        job=job.job,
        user=re.sub(r"[^\w.@+\\$-]", "_", job.user)[:64],
        start=job.start,
        at=min(job.end or now, now),  # Slurm's clock may be ahead, and what is to come is in no history
        kind=rule.kind,
        rule=rule.id,
        confidence=cause.confidence,
        rank=cause.rank if cause.rank is not None and 0 <= cause.rank < MOST_RANKS else None,
        gpu=gpu,
    )


def _node(named: str | None, nodes: Sequence[str]) -> str:
    """The name that Slurm has for a node: logs may have its full one."""
    if named is None:
        if len(nodes) == 1:
            return nodes[0]
        raise NothingToRecord(f"the diagnosis names none of the job's {len(nodes)} nodes")
    if named in nodes:
        return named
    alike = [each for each in nodes if short(each) == short(named)]
    if len(alike) != 1 or ("." in named and "." in alike[0]):
        raise Refused(f"node {named[:80]!r} is none of the job's · only what happened on its own nodes is recorded")
    return alike[0]


class Verdict(StrEnum):
    """What the number of incidents of a kind says of their node."""

    ONCE = "once"
    REPEATS = "repeats"
    SHARED = "shared"
    """Several nodes have it as often: what they share is to be looked at."""


class Kind(_Model):
    """The incidents of one kind on one node."""

    kind: str
    title: str
    jobs: int
    sure: int
    """Of these jobs, those whose diagnosis is at least likely: only they count for a verdict."""
    users: int
    last: AwareDatetime
    gpus: tuple[str, ...]
    """Addresses of GPUs that were named."""
    other_nodes: int
    """Nodes that had it, too."""
    other_most: int
    """Of those, how many sure jobs the worst one has."""
    node_suspected: bool
    """Whether such a cause is one of its node: then a job is to be started again elsewhere."""
    verdict: Verdict


class NodeHistory(_Model):
    """Of one node."""

    node: str
    jobs: int
    last: AwareDatetime
    kinds: tuple[Kind, ...]
    exchanged: tuple[str, ...]
    """GPUs of which another one was at the same address later, in words."""
    advice: tuple[str, ...]
    incidents: tuple[Incident, ...]
    """Newest first."""


class History(_Model):
    """The answer of `muster history`."""

    since: AwareDatetime
    until: AwareDatetime
    nodes: tuple[NodeHistory, ...]
    """That of the last incident first."""
    nothing_of: tuple[str, ...] = ()
    """Nodes that were asked for, and of which no incident is known."""
    not_read: tuple[str, ...] = ()
    """Records that could not be read, each with why: what is in them is not counted."""


def schema() -> dict[str, Any]:
    """The JSON schema of what `muster history --json` prints."""
    made = History.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def history(
    incidents: Iterable[Incident],
    since: datetime,
    until: datetime,
    rules: Mapping[str, Rule],
    limits: Limits,
    only: Sequence[str] = (),
    not_read: Sequence[str] = (),
) -> History:
    """What is known of nodes between two times; all nodes' incidents are given, as they are compared."""
    by_node: dict[str, list[Incident]] = defaultdict(list)
    for each in incidents:
        if since <= each.at <= until:
            by_node[each.node].append(each)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for node, mine in by_node.items():
        for kind in {each.kind for each in mine}:
            counts[kind][node] = len(_runs(each for each in mine if each.kind == kind and _sure(each)))
    made = [_of_node(node, mine, counts, rules, limits) for node, mine in by_node.items() if not only or node in only]
    return History(
        since=since,
        until=until,
        nodes=tuple(sorted(made, key=lambda each: (each.last, each.node), reverse=True)),
        nothing_of=tuple(each for each in dict.fromkeys(only) if each not in by_node),
        not_read=tuple(not_read),
    )


def _of_node(
    node: str,
    mine: Sequence[Incident],
    counts: Mapping[str, Mapping[str, int]],
    rules: Mapping[str, Rule],
    limits: Limits,
) -> NodeHistory:
    newest = sorted(mine, key=lambda each: each.at, reverse=True)
    grouped: dict[str, list[Incident]] = defaultdict(list)
    for each in newest:
        grouped[each.kind].append(each)
    kinds = [_kind(node, of_kind, counts[kind], rules, limits) for kind, of_kind in grouped.items()]
    kinds.sort(key=lambda each: (-each.sure, -each.jobs, each.kind))
    exchanged = _exchanged(mine)
    return NodeHistory(
        node=node,
        jobs=len(_runs(mine)),
        last=newest[0].at,
        kinds=tuple(kinds),
        exchanged=exchanged,
        advice=_advice(node, kinds, exchanged),
        incidents=tuple(newest[:MOST_SHOWN]),
    )


def _kind(
    node: str, mine: Sequence[Incident], counts: Mapping[str, int], rules: Mapping[str, Rule], limits: Limits
) -> Kind:
    sure = counts.get(node, 0)
    others = {name: count for name, count in counts.items() if name != node}
    worst = max(others.values(), default=0)
    verdict = Verdict.ONCE
    if sure >= limits.repeats:
        shared = len(others) + 1 >= limits.shared_nodes and sure < limits.times * worst
        verdict = Verdict.SHARED if shared else Verdict.REPEATS
    rule = rules.get(mine[0].rule)  # another version's may be gone
    return Kind(
        kind=mine[0].kind,
        title=rule.title if rule else mine[0].kind,
        jobs=len(_runs(mine)),
        sure=sure,
        users=len({each.user for each in mine}),
        last=mine[0].at,
        gpus=tuple(sorted({each.gpu for each in mine if each.gpu})),
        other_nodes=len(others),
        other_most=worst,
        node_suspected=any(found.retry is Retry.OTHER_NODE for each in mine if (found := rules.get(each.rule))),
        verdict=verdict,
    )


def _advice(node: str, kinds: Sequence[Kind], exchanged: Sequence[str]) -> tuple[str, ...]:
    repeating = [each for each in kinds if each.verdict is Verdict.REPEATS and each.node_suspected]
    shared = [each for each in kinds if each.verdict is Verdict.SHARED]
    said = []
    if repeating:
        why = repeating[0].kind
        said.append(
            f'drain it: scontrol update NodeName={node} State=DRAIN Reason="{why}, {repeating[0].sure} jobs"; '
            f"then examine it: muster certify {node}"
        )
        if all(each.users == 1 for each in repeating):
            said.append("one user's jobs alone say so: look at their diagnoses first")
        if exchanged:
            said.append("a GPU was exchanged and it goes on: look at riser, cables, power and the board itself")
    said += [
        f"{each.kind}: seldom a node's own fault: look at what these jobs did, and at what they share"
        for each in kinds
        if each.verdict is Verdict.REPEATS and not each.node_suspected
    ]
    for each in shared:
        said.append(f"{each.kind}: {each.other_nodes} other nodes have it, too: look at what they share, not at {node}")
    if not said and any(each.node_suspected for each in kinds):
        said.append(f"once is no pattern yet: muster certify {node} examines it; a second one is a reason to drain")
    return tuple(said)


def _exchanged(mine: Sequence[Incident]) -> tuple[str, ...]:
    last: dict[str, Incident] = {}
    said = []
    for each in sorted(mine, key=lambda each: each.at):
        if each.gpu is None or each.gpu_uuid is None:
            continue
        before = last.get(each.gpu)
        if before is not None and before.gpu_uuid != each.gpu_uuid:
            said.append(
                f"GPU {each.gpu}: {before.gpu_uuid} on {before.at:%-d %b %Y}, {each.gpu_uuid} on {each.at:%-d %b %Y}"
            )
        last[each.gpu] = each
    return tuple(said)


def died(incidents: Iterable[Incident]) -> dict[str, int]:
    """How many jobs died on each node; a node that is not in it let none die that is known."""
    runs: dict[str, set[tuple[str, datetime | None]]] = defaultdict(set)
    for each in incidents:
        runs[each.node].add((each.job, each.start))
    return {node: len(mine) for node, mine in runs.items()}


def before(node: str, kind: str, incidents: Iterable[Incident], now: datetime, days: int, job: str = "") -> Before:
    """What a node did before, for the diagnosis of a job: the job's own record does not count."""
    since = now - timedelta(days=days)
    mine = [each for each in incidents if each.node == node and since <= each.at <= now and each.job != job]
    jobs = len(_runs(mine))
    same = len(_runs(each for each in mine if each.kind == kind))
    last = max((each.at for each in mine), default=None)
    if last is None:
        words = f"{node}: no other job is known to have died on it in {days} days"
    else:
        of_kind = {0: "never of this kind before", 1: "once of this kind before", 2: "twice of this kind before"}
        words = (
            f"{node}: {_ordinal(jobs + 1)} time in {days} days, "
            f"{of_kind.get(same, f'{same} times of this kind before')}, last on {last:%-d %b}"
        )
    return Before(node=node, days=days, jobs=jobs, same_kind=same, last=last, words=words)


def _ordinal(number: int) -> str:
    words = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    return words[number] if number < len(words) else f"{number}th"


def _sure(each: Incident) -> bool:
    return each.confidence.level >= Confidence.LIKELY.level


def _runs(incidents: Iterable[Incident]) -> set[tuple[str, datetime | None]]:
    """Each run of a job once."""
    return {(each.job, each.start) for each in incidents}
