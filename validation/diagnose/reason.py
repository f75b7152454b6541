"""From what was found to the root cause: who failed first, what is only consequence, and how sure that is. Pure.

Lines are believed by their role before their time, as clocks of nodes differ and buffers are written late: what other
ranks say when one is gone is never the cause while something is there that explains it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from validation.diagnose.finding import Cause, Diagnosis, Evidence, Found, Read, Step
from validation.diagnose.kinds import Confidence, Retry, Role, Symptom
from validation.diagnose.rule import Rule
from validation.diagnose.times import SLOWNESS, after, ended_well, job_time, long_before, not_later, went_on

_ADDRESS = re.compile(
    r"(?:PCI:)?(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2})(?P<function>\.[0-7])?", re.IGNORECASE
)

TRIED_AGAIN = ("rendezvous.", "network.", "node.")
"""Kinds of cause that a start may meet with, and overcome."""

TASK_ENDED = ("slurm.task_failed", "slurm.task_crashed")
"""What Slurm says of the node whose task ended by itself: where one node did, what could not start was there."""

SAID_BY_A_PROCESS = ("program.", "data.", "loss.")
"""Kinds of cause that the process itself writes when it ends, in the order in which they happen."""

MOST_EVIDENCE = 6
MOST_CONSEQUENCES = 12
MOST_OTHERS = 4
MOST_RANKS = 4096
"""Whose last steps are told."""


@dataclass
class _Candidate:
    """What one kind of cause did to one rank, node or GPU."""

    rule: Rule
    founds: list[Found] = field(default_factory=list)
    level: int = 0

    @property
    def time(self) -> datetime | None:
        return min((each.line.time for each in self.founds if each.line.time), default=None)

    @property
    def first(self) -> Found:
        return min(self.founds, key=lambda each: _when(each.line.time))

    def takes(self, name: str) -> str | None:
        return next((each.takes[name] for each in self.founds if name in each.takes), None)

    @property
    def gpu(self) -> str | None:
        named = self.takes("gpu")
        return _gpu(named) if named else None

    @property
    def rank(self) -> int | None:
        named = self.takes("rank")
        if named is not None and named.isdecimal() and len(named) < 8:
            return int(named)
        return next((each.line.rank for each in self.founds if each.line.rank is not None), None)

    @property
    def node(self) -> str | None:
        return self.takes("node") or next((each.line.node for each in self.founds if each.line.node), None)


def diagnose(found: Iterable[Found], rules: Sequence[Rule], read: Read) -> Diagnosis:
    """The answer for one job. Never raises; `unknown` where no line names a cause."""
    by_id = {rule.id: rule for rule in rules}
    known = [each for each in found if each.rule in by_id]
    ours = job_time(known, by_id)
    outside = [each for each in known if ours is not None and ours.outside(each, by_id[each.rule])]
    known = [each for each in known if each not in outside]
    roles: dict[Role, list[Found]] = defaultdict(list)
    for each in known:
        roles[by_id[each.rule].role].append(each)
    there = {name for each in known for name in (each.rule, by_id[each.rule].kind)}
    candidates = _candidates(roles[Role.ROOT] or roles[Role.CONFIRMATION], by_id)
    for candidate in candidates:
        candidate.level = _level(candidate.rule, there)
    if (end := ended_well(roles[Role.PROGRESS], by_id)) is not None:
        candidates = [each for each in candidates if not _survived(each, end)]
    candidates = [each for each in candidates if not _begun(each, roles[Role.PROGRESS], by_id)]
    standing = [each for each in candidates if not any(_explained(each, other) for other in candidates)]
    standing = standing or candidates  # two that explain each other
    standing.sort(key=lambda each: (-each.level, _when(each.time), each.rule.id))
    _join(standing, known, by_id)
    steps = _last_steps(roles[Role.PROGRESS])
    consequences = _consequences(known, standing[:1], by_id)
    if not standing:
        elsewhen = _candidates([each for each in outside if by_id[each.rule].role is Role.ROOT], by_id)
        return _unknown(by_id, read, consequences, steps, elsewhen)
    best, others = standing[0], [each for each in standing[1:] if each.rule.kind != standing[0].rule.kind]
    sure = Confidence.CERTAIN.level if not others else Confidence.LIKELY.level
    if any(each.level >= best.level for each in others):
        sure = Confidence.POSSIBLE.level
    rule = best.rule
    consequences = _consequences(known, [best, *others[:MOST_OTHERS]], by_id)  # one is not the other
    return Diagnosis(
        root_cause=_cause(best, min(best.level, sure)),
        others=tuple(_cause(each, min(each.level, Confidence.POSSIBLE.level)) for each in others[:MOST_OTHERS]),
        consequences=consequences,
        symptom=rule.symptom,
        checks=rule.check,
        fixes=rule.fix,
        retry=rule.retry,
        retry_why=_retry_why(rule, best),
        last_step=max((each.step for each in steps), default=None),
        last_steps=steps,
        read=read,
    )


def _when(time: datetime | None) -> tuple[bool, float]:
    """To sort by: what has no time comes last."""
    return time is None, time.timestamp() if time else 0.0


def _candidates(founds: Iterable[Found], by_id: Mapping[str, Rule]) -> list[_Candidate]:
    """One for each kind and whom it blames; its rule is the one that is surest by itself."""
    grouped: dict[tuple[object, ...], _Candidate] = {}
    for each in founds:
        rule = by_id[each.rule]
        gpu = _gpu(each.takes["gpu"]) if "gpu" in each.takes else None
        whom = (gpu, each.takes.get("rank"), each.takes.get("node") or each.line.node)
        candidate = grouped.setdefault((rule.kind, *whom), _Candidate(rule))
        if rule.confidence.level > candidate.rule.confidence.level:
            candidate.rule = rule
        candidate.founds.append(each)
    return list(grouped.values())


def _level(rule: Rule, there: set[str]) -> int:
    confirmed = any(name in there for name in rule.confirmed_by)
    return min(Confidence.CERTAIN.level, rule.confidence.level + confirmed)


def _explained(one: _Candidate, other: _Candidate) -> bool:
    """Whether `one` is only what comes of `other`: it says so, and did not come clearly later."""
    if one is other or not {one.rule.kind, one.rule.id} & set(other.rule.explains):
        return False
    if one.rule.kind in one.rule.explains or {other.rule.kind, other.rule.id} & set(one.rule.explains):
        return False
    if (
        one.rule.kind == "network.rdma_path"
        and other.rule.kind.startswith(SAID_BY_A_PROCESS)
        and _below(other.first, one.first)
    ):
        return False  # packets go unanswered seconds after a peer ended, so what follows here is its clean-up
    return not_later(other.first, one.first)


def _below(one: Found, other: Found) -> bool:
    """Whether one is written after the other in the same file."""
    return one.line.file == other.line.file and one.line.number > other.line.number


def _survived(one: _Candidate, end: Found) -> bool:
    """Whether the job ended well although this was said: a warning, or what was mended; slow it may have been."""
    if one.level <= Confidence.POSSIBLE.level:
        return not any(after(each, end) for each in one.founds)
    return one.rule.symptom not in SLOWNESS and all(long_before(each, end) for each in one.founds)


def _join(standing: Sequence[_Candidate], known: Sequence[Found], by_id: Mapping[str, Rule]) -> None:
    """Adds to what a process says without its node what the one node says that tells the same, or confirms it."""
    for best in standing[:1]:
        if best.node is None:
            sames = {best.rule.kind, *best.rule.confirmed_by}
            said = [
                each
                for each in known
                if by_id[each.rule].role in (Role.ROOT, Role.CONFIRMATION)
                and {each.rule, by_id[each.rule].kind} & sames - {"peer.lost"}  # which others say, of themselves
                and each.line.rank in (None, best.rank)
                and _node(each)
            ]
            if len({_node(each) for each in said}) == 1:
                best.founds += [each for each in said if all(each is not mine for mine in best.founds)]
        if best.node is None and best.rule.kind.startswith("launch."):
            ended = [each for each in known if each.rule in TASK_ENDED and each.takes.get("node")]
            best.founds += ended[:1] if len({each.takes["node"] for each in ended}) == 1 else []


def _node(found: Found) -> str | None:
    return found.takes.get("node") or found.line.node


def _begun(one: _Candidate, progress: Sequence[Found], by_id: Mapping[str, Rule]) -> bool:
    """Whether the job came up although this was said: it was tried again, and steps were made."""
    steps = [each for each in progress if by_id[each.rule].kind == "progress.step"]
    over = (any(went_on(each, step) for step in steps) for each in one.founds)
    return one.rule.symptom is Symptom.NO_START and one.rule.kind.startswith(TRIED_AGAIN) and all(over)


def _consequences(known: Sequence[Found], best: Sequence[_Candidate], by_id: Mapping[str, Rule]) -> tuple[Cause, ...]:
    """What else was found and is not the cause, of each kind once."""
    mine, kinds = {id(found) for each in best for found in each.founds}, {each.rule.kind for each in best}
    grouped: dict[str, _Candidate] = {}
    for each in known:
        rule = by_id[each.rule]
        if id(each) not in mine and rule.role in (Role.ROOT, Role.CASCADE) and rule.kind not in kinds:
            grouped.setdefault(rule.kind, _Candidate(rule)).founds.append(each)
    ordered = sorted(grouped.values(), key=lambda each: (*_when(each.time), each.rule.id))
    return tuple(_cause(each, Confidence.POSSIBLE.level) for each in ordered[:MOST_CONSEQUENCES])


def _cause(candidate: _Candidate, level: int) -> Cause:
    rule = candidate.rule
    ordered = sorted(candidate.founds, key=lambda each: (*_when(each.line.time), each.line.file))
    return Cause(
        kind=rule.kind,
        summary=_summary(rule, candidate),
        confidence=list(Confidence)[level],
        rule=rule.id,
        rank=candidate.rank,
        node=candidate.node,
        gpu=candidate.gpu,
        peer=candidate.takes("peer"),
        rail=candidate.takes("rail"),
        time=candidate.time,
        evidence=tuple(_evidence(each) for each in ordered[:MOST_EVIDENCE]),
    )


def _summary(rule: Rule, candidate: _Candidate) -> str:
    whom = [
        f"{name} {value}"
        for name, value in (("rank", candidate.rank), ("node", candidate.node), ("GPU", candidate.gpu))
        if value is not None
    ]
    return rule.title + (f" · {', '.join(whom)}" if whom else "")


def _gpu(text: str) -> str:
    """The address of a GPU as lspci writes it, however the driver, nvidia-smi or NCCL wrote it."""
    found = _ADDRESS.fullmatch(text)
    return f"{found['domain'][-4:]}:{found['rest']}{found['function'] or '.0'}".lower() if found else text


def _evidence(found: Found) -> Evidence:
    line = found.line
    text = "".join(each if each.isprintable() else " " for each in line.text)[:400]
    return Evidence(
        file=line.file, line=line.number, text=text, time=line.time, rank=line.rank, node=line.node, count=found.count
    )


def _last_steps(progress: Iterable[Found]) -> tuple[Step, ...]:
    last: dict[tuple[int, str, str], Step] = {}
    for each in progress:
        told, line = each.takes.get("step", ""), each.line
        if told.isdecimal() and len(told) < 16:
            step = Step(
                step=int(told), file=line.file, line=line.number, time=line.time, rank=line.rank, node=line.node
            )
            # A rank may write several files; without one, a file stands for whoever wrote it.
            whose = (-1, line.node or "", line.file) if line.rank is None else (line.rank, "", "")
            if whose not in last or last[whose].step < step.step:
                last[whose] = step
    return tuple(last[whose] for whose in sorted(last)[:MOST_RANKS])


def _retry_why(rule: Rule, best: _Candidate) -> str:
    where = f" {best.node}" if best.node else ""
    return {
        Retry.YES: "it may pass: the same start can succeed",
        Retry.OTHER_NODE: f"on other nodes: the one named{where} stays out until it was examined",
        Retry.AFTER_FIX: "not before it is mended: the same start ends the same",
        Retry.NO: "it was stopped on purpose, or is done",
        Retry.UNKNOWN: "",
    }[rule.retry]


def _unknown(
    by_id: Mapping[str, Rule],
    read: Read,
    consequences: tuple[Cause, ...],
    steps: tuple[Step, ...],
    elsewhen: Sequence[_Candidate],
) -> Diagnosis:
    """Nothing names a cause: what is there are consequences, what the nodes said at another time, or nothing."""
    checks: tuple[str, ...]
    if consequences:
        silent = f"; ranks {', '.join(map(str, read.missing_ranks[:8]))} left no line" if read.missing_ranks else ""
        summary = f"what was read are only consequences of something else{silent}"
        symptom = by_id[consequences[0].rule or ""].symptom
        checks = ("look for the logs of the rank and node that ended first, and for the kernel's log of its node",)
    else:
        summary, symptom = "nothing that was read is known to be a cause", None
        checks = ("give more: all ranks' logs, the kernel's log of each node, the scheduler's record of the job",)
    if elsewhen:
        summary += "; what nodes said is of another time than the job"
        checks = (*checks, "whether the clocks and the time zones of the nodes' logs are those of the job's")
    return Diagnosis(
        root_cause=Cause(kind="unknown", summary=summary, confidence=Confidence.UNKNOWN),
        others=tuple(_cause(each, Confidence.POSSIBLE.level) for each in elsewhen[:MOST_OTHERS]),
        consequences=consequences,
        symptom=symptom,
        checks=checks,
        last_step=max((each.step for each in steps), default=None),
        last_steps=steps,
        read=read,
    )
