"""From jobs, journals and prices to the report, per job, user and week. Pure; the order of the input is no matter."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import fsum
from typing import Any, TypeVar

from validation.efficiency.accounting import Accounting, Job, Key
from validation.efficiency.figures import JobFigures, Report, Share, Slowest, Sum, UserFigures, WeekFigures
from validation.efficiency.history import (
    COMMUNICATION,
    PARTS,
    Attempt,
    Cause,
    Piece,
    Run,
    Slow,
    Told,
    owner,
    pieces,
    told,
)
from validation.efficiency.prices import Prices

T = TypeVar("T", bound=Sum)
HOUR_S = 3600.0
WEEK_S = 7 * 24 * 3600
OFTEN = 0.1
"""Share of what was waited for a node, from which on a rank of it is named."""
NO_JOURNAL = "no journal was given for it"


@dataclass(frozen=True)
class Explained:
    """A job's time in pieces, and what is known of it beside them."""

    job: Job
    end_s: float
    pieces: tuple[Piece, ...]
    measured: frozenset[Cause] = frozenset()
    communication: bool = False
    busy: tuple[tuple[float, float], ...] = ()
    run: str | None = None
    why_not: str | None = NO_JOURNAL


@dataclass(frozen=True)
class Slice:
    """What of a job lies in a span of time."""

    of: Explained
    begin_s: float
    end_s: float
    pieces: tuple[Piece, ...]
    price: float | None
    """Of an hour of all its GPUs."""

    @cached_property
    def gpu_hours(self) -> float:
        """Held."""
        return self.of.job.count * (self.end_s - self.begin_s) / HOUR_S

    def cause(self, cause: Cause) -> float:
        """GPU-hours of a cause."""
        return self._causes.get(cause, 0.0)

    @property
    def unwatched(self) -> float:
        """GPU-hours in steps in which waits for the slowest were not measured."""
        return self.of.job.count * fsum(each.unwatched_s for each in self.pieces) / HOUR_S

    @cached_property
    def _causes(self) -> dict[Cause, float]:
        found: dict[Cause, list[float]] = {}
        for each in self.pieces:
            for cause, seconds in each.causes.items():
                found.setdefault(cause, []).append(seconds)
        return {cause: self.of.job.count * fsum(seconds) / HOUR_S for cause, seconds in found.items()}


def report(
    accounting: Accounting,
    runs: Sequence[Run],
    prices: Prices,
    now_s: float,
    begin_s: float | None = None,
    end_s: float | None = None,
) -> Report:
    """The whole. `begin_s` and `end_s` are of the period; without them it is all there is, at most up to `now_s`."""
    held = [job for job in accounting.jobs if job.count]
    ended = max((now_s if job.end_s is None else float(job.end_s) for job in held), default=now_s)
    end = min(now_s, ended if end_s is None else end_s)
    begin = begin_s if begin_s is not None else min((float(job.start_s) for job in held), default=end)
    explained, problems = explain(held, runs, now_s)
    slices = [found for each in explained if (found := _slice(each, begin, end, prices)) is not None]
    if accounting.jobs and not held:
        problems.append("no job has gres/gpu in its AllocTRES · is it in AccountingStorageTRES of slurm.conf?")
    unpriced = {f"{each.of.job.partition} ({_models(each.of.job)})" for each in slices if each.price is None}
    if prices.given and unpriced:
        problems.append(
            f"no price for GPUs of {', '.join(sorted(unpriced)[:8])} · give one by partition, model or for all"
        )
    return Report(
        begin_s=int(begin),
        end_s=int(end),
        currency=prices.currency,
        total=_sum(slices, (begin, end), Sum),
        weeks=_weeks(slices, begin, end, prices),
        users=[_sum(theirs, (begin, end), UserFigures, user=user) for user, theirs in _by_user(slices)],
        jobs=[_job(each, begin, end) for each in slices],
        without_gpus=len(accounting.jobs) - len(held),
        not_started=accounting.waiting,
        problems=[*accounting.problems, *problems],
    )


def explain(jobs: Sequence[Job], runs: Sequence[Run], now_s: float) -> tuple[list[Explained], list[str]]:
    """Each job with what the journals say of it, and what of the journals belongs to no job."""
    starts: dict[Key, list[tuple[Run, Told, Attempt]]] = {}
    by_id: dict[str, list[Job]] = {}
    for each in jobs:
        by_id.setdefault(each.id, []).append(each)
    problems = []
    for run in sorted(runs, key=lambda each: each.name):
        known = told(run.lines)
        lost = 0
        for attempt in known.attempts:
            job = owner(attempt, run, by_id, now_s)
            if job is None:
                lost += 1
            else:
                starts.setdefault(job.key, []).append((run, known, attempt))
        if lost:
            problems.append(
                f"{run.name}: {lost} of {len(known.attempts)} starts belong to no job of this accounting · "
                "name its jobs (--run JOB,JOB=FOLDER), or ask for the time in which they ran"
            )
        elif not known.attempts:
            problems.append(f"{run.name}: no start in its journal · is there a goodput.jsonl?")
    return [_explained(job, starts.get(job.key, []), now_s) for job in jobs], problems


def _explained(job: Job, starts: Sequence[tuple[Run, Told, Attempt]], now_s: float) -> Explained:
    end = float(job.end_s if job.end_s is not None else max(now_s, job.start_s))
    runs = {run.name for run, _, _ in starts}
    why_not = None
    if not starts:
        why_not = NO_JOURNAL
    elif len(runs) > 1:
        why_not = f"several runs claim it: {', '.join(sorted(runs)[:4])}"
    elif job.suspended_s:
        why_not = f"it was suspended for {job.suspended_s} s, and when is not known"
    if why_not is not None:
        whole = (Piece(job.start_s, end, {Cause.UNKNOWN: end - job.start_s}),) if end > job.start_s else ()
        return Explained(job, end, whole, why_not=why_not)
    known, attempts = starts[0][1], [attempt for _, _, attempt in starts]
    stretches = [each for attempt in attempts for each in attempt.stretches]
    whole_told = bool(stretches) and all(each.parts for each in stretches)
    phases = {cause for name, cause in PARTS.items() if whole_told and name in known.phases}
    watched = {Cause.STRAGGLER} if any(each.watched for each in stretches) else set()
    told_of = Told(attempts, known.blind_until_s, known.phases if whole_told else frozenset())
    return Explained(
        job,
        end,
        tuple(pieces(job, attempts, told_of, end)),
        measured=frozenset({Cause.USEFUL, Cause.START, Cause.FAILURE, Cause.IDLE, *phases, *watched}),
        communication=whole_told and COMMUNICATION in known.phases,
        busy=tuple(each for attempt in attempts for each in attempt.busy),
        run=starts[0][0].name,
        why_not=None,
    )


def _slice(each: Explained, begin_s: float, end_s: float, prices: Prices) -> Slice | None:
    begin, end = max(begin_s, each.job.start_s), min(end_s, each.end_s)
    if end <= begin:
        return None
    cut = tuple(found for piece in each.pieces if (found := piece.clipped(begin, end)) is not None)
    return Slice(each, begin, end, cut, prices.hour(each.job))


def _by_user(slices: Sequence[Slice]) -> list[tuple[str, list[Slice]]]:
    found: dict[str, list[Slice]] = {}
    for each in slices:
        found.setdefault(each.of.job.user, []).append(each)
    return sorted(found.items())


def _weeks(slices: Sequence[Slice], begin_s: float, end_s: float, prices: Prices) -> list[WeekFigures]:
    found: dict[int, list[Slice]] = {}
    for each in slices:
        monday = _monday(each.begin_s)
        while monday < each.end_s:
            part = _slice(each.of, max(begin_s, monday), min(end_s, monday + WEEK_S), prices)
            if part is not None:
                found.setdefault(monday, []).append(part)
            monday += WEEK_S
    made = []
    for monday, parts in sorted(found.items()):
        year, week, _ = datetime.fromtimestamp(monday, UTC).isocalendar()
        name = f"{year}-W{week:02}"
        span = max(begin_s, monday), min(end_s, monday + WEEK_S)
        made.append(_sum(parts, span, WeekFigures, week=name, begin_s=monday))
    return made


def _monday(at_s: float) -> int:
    day = datetime.fromtimestamp(at_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((day - timedelta(days=day.weekday())).timestamp())


def _job(each: Slice, begin_s: float, end_s: float) -> JobFigures:
    job = each.of.job
    return _sum(
        [each], (begin_s, end_s), JobFigures,
        id=job.id, cluster=job.cluster, user=job.user, account=job.account, partition=job.partition, name=job.name,
        state=job.state, gpus=dict(job.gpus), start_s=job.start_s, end_s=job.end_s,
        run=each.of.run, not_explained=each.of.why_not, slowest=_slowest(each),
    )  # fmt: skip


def _slowest(each: Slice) -> list[Slowest]:
    """Nodes whose ranks the others waited for, most first."""
    found: dict[Slow, list[float]] = {}
    for piece in each.pieces:
        for who, seconds in piece.slow.items():
            found.setdefault(who, []).append(seconds)
    waited = {who: each.of.job.count * fsum(seconds) / HOUR_S for who, seconds in found.items()}
    most = sorted((who for who, hours in waited.items() if hours > 0), key=lambda who: (-waited[who], str(who)))
    nodes: dict[str, list[Slow]] = {}
    for who in most:
        nodes.setdefault(who[0], []).append(who)
    made = []
    for node, them in nodes.items():
        whole = fsum(waited[who] for who in them)
        often = [who for who in them if waited[who] >= OFTEN * whole] or them[:1]
        ranks, phases = (dict.fromkeys(each[at] for each in often) for at in (1, 2))
        made.append(Slowest(node=node, ranks=list(ranks), phases=[each for each in phases if each], gpu_hours=whole))
    return sorted(made, key=lambda found: (-found.gpu_hours, found.node))


def _models(job: Job) -> str:
    return ", ".join(model or "model not known" for model in job.gpus)


def _sum(slices: Sequence[Slice], span: tuple[float, float], shape: type[T], **more: Any) -> T:
    """The figures of some slices. Sums are exact before they are rounded: no order of them gives another."""
    priced = [each for each in slices if each.price is not None]
    told_of = [each for each in slices if each.of.run is not None]
    queued = [wait for each in slices if (wait := _wait(each, *span)) is not None]
    explained = fsum(each.gpu_hours - each.cause(Cause.UNKNOWN) for each in told_of)
    useful = fsum(each.cause(Cause.USEFUL) for each in told_of)
    steps = fsum(piece.steps for each in told_of for piece in each.pieces)
    both = [each for each in told_of if each.price is not None]
    both_cost = fsum(_cost(each) for each in both)
    busy, busy_of = _mean(_busy(each) for each in slices)
    talk, talk_of = _mean(_communication(each) for each in slices)
    return shape(
        jobs=len(slices),
        gpu_hours=fsum(each.gpu_hours for each in slices),
        causes={cause: _share(slices, cause) for cause in Cause},
        queue_hours=fsum(queued) / HOUR_S if queued else None,
        queue_measured_jobs=len(queued),
        broken_gpu_hours=fsum(each.gpu_hours for each in slices if each.of.job.broke),
        cost=fsum(_cost(each) for each in priced) if priced else None,
        unpriced_gpu_hours=fsum(each.gpu_hours for each in slices if each.price is None),
        useful_steps=steps if told_of else None,
        useful_steps_per_cost=fsum(piece.steps for each in both for piece in each.pieces) / both_cost
        if both_cost > 0
        else None,
        goodput=min(1.0, useful / explained) if explained > 0 else None,
        gpu_busy=busy,
        gpu_busy_measured_gpu_hours=busy_of,
        communication=talk,
        communication_measured_gpu_hours=talk_of,
        **more,
    )


def _share(slices: Sequence[Slice], cause: Cause) -> Share:
    of = list(slices) if cause is Cause.UNKNOWN else [each for each in slices if cause in each.of.measured]
    measured = fsum(each.gpu_hours for each in of)
    if cause is not Cause.UNKNOWN:
        measured = max(0.0, measured - fsum(each.cause(Cause.UNKNOWN) for each in of))
    if cause is Cause.STRAGGLER:
        measured = max(0.0, measured - fsum(each.unwatched for each in of))
    known = bool(of) and (measured > 0 or cause is Cause.UNKNOWN)
    return Share(gpu_hours=fsum(each.cause(cause) for each in of) if known else None, measured_gpu_hours=measured)


def _cost(each: Slice) -> float:
    return (each.price or 0.0) * (each.end_s - each.begin_s) / HOUR_S


def _wait(each: Slice, begin_s: float, end_s: float) -> float | None:
    """Seconds in the queue; it counts where the job started."""
    job = each.of.job
    return (
        float(job.start_s - job.eligible_s) if job.eligible_s is not None and begin_s <= job.start_s < end_s else None
    )


def _busy(each: Slice) -> tuple[float, float] | None:
    """Mean and weight."""
    found = [share for at, share in each.of.busy if each.begin_s <= at < each.end_s]
    return (fsum(found) / len(found), each.gpu_hours) if found else None


def _communication(each: Slice) -> tuple[float, float] | None:
    in_steps = fsum(piece.step_s for piece in each.pieces)
    if not each.of.communication or in_steps <= 0:
        return None
    return fsum(piece.communication_s for piece in each.pieces) / in_steps, each.gpu_hours


def _mean(found: Iterable[tuple[float, float] | None]) -> tuple[float | None, float]:
    """The mean by weight, and the weight."""
    known = [each for each in found if each is not None]
    weight = fsum(weight for _, weight in known)
    return (min(1.0, fsum(mean * weight for mean, weight in known) / weight), weight) if weight > 0 else (None, 0.0)
