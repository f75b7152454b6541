"""NCCL's RAS: which rank has launched the fewest collectives, which does not answer. Pure: parsing and what it means.

Source: NCCL's user guide, troubleshooting/ras (text since 2.24, JSON since 2.28); nccl src/ras/client_support.cc.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from validation.diagnose.finding import Line
from validation.diagnose.live.snapshot import Communicator, Rank, Ras, RasRank, Snapshot

MOST_NAMED = 16
"""Ranks of one communicator. Where more are behind, none of them is."""

IN_PROGRESS = 7
"""ncclInProgress: no error."""

_NO_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*\n\s*"status")')
"""NCCL 2.28 leaves out the comma between these two of a missing rank."""


class RasError(Exception):
    """What answered is not RAS, or of a version that is not known."""


def parse(text: str) -> Ras:
    """RAS's JSON. Raises RasError."""
    try:
        told = json.loads(_NO_COMMA.sub(r"\1,\2", text))
        return Ras(
            nccl=str(told.get("nccl_version", "")),
            communicators=tuple(_communicator(each) for each in told["communicators"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as wrong:
        raise RasError(
            f"NCCL's RAS answered what is not understood: {type(wrong).__name__}: {str(wrong)[:120]}"
        ) from None


def _communicator(told: Mapping[str, Any]) -> Communicator:
    ranks = [_rank(each, answers=True) for each in told.get("ranks", [])]
    ranks += [_rank(each, answers=False) for each in told.get("missing_ranks", [])]
    return Communicator(name=str(told.get("hash", "")), size=told.get("size", len(ranks)), ranks=tuple(ranks))


def _rank(told: Mapping[str, Any], answers: bool) -> RasRank:
    status = told.get("status", {})
    return RasRank(
        rank=told["rank"],
        host=str(told.get("host", "")),
        pid=told.get("pid", 0),
        counts=told.get("collective_counts", {}),
        async_error=status.get("async_error", 0),
        answers=answers,
        dead=bool(status.get("considered_dead", False)),
    )


def told(snapshots: Sequence[Snapshot], ranks: Mapping[int, tuple[Rank, Snapshot]], settled: bool) -> Iterator[Line]:
    """Lines of the ranks that are behind, gone or in error. Every node says the same of the job: the first counts.

    `settled`: the job does not go on, so that a count that is behind stays so.
    """
    source = next((each for each in snapshots if each.ras is not None and each.ras.communicators), None)
    if source is None or source.ras is None:
        return
    for each in source.ras.communicators:
        if each.size < 2:
            continue
        for rank, text in _of(each, settled):
            number = _number(rank, each, ranks)
            whose = f"rank {number}" if number is not None else f"process {rank.pid} on {rank.host}"
            line = f"live: RAS: {whose} {text} of communicator {each.name}"
            node = ranks[number][1].node if number is not None and number in ranks else None
            yield Line(source.name, 0, line, source.time, number, node)


def _of(each: Communicator, settled: bool) -> Iterator[tuple[RasRank, str]]:
    for rank in [rank for rank in each.ranks if not rank.answers][:MOST_NAMED]:
        yield rank, f"{'is considered dead' if rank.dead else 'does not answer'}, {len(each.ranks)} ranks are"
    for rank in [rank for rank in each.ranks if rank.async_error not in (0, IN_PROGRESS)][:MOST_NAMED]:
        yield rank, f"has the asynchronous error {rank.async_error}, {len(each.ranks)} ranks are"
    if not settled:
        return
    for op in sorted({name for rank in each.ranks for name in rank.counts}):
        counts = Counter(rank.counts.get(op, 0) for rank in each.ranks if rank.answers)
        most = max(counts, default=0)
        behind = [rank for rank in each.ranks if rank.answers and rank.counts.get(op, 0) < most]
        if behind and len(behind) <= min(MOST_NAMED, sum(counts.values()) // 2):
            for rank in behind:
                yield rank, f"has launched {rank.counts.get(op, 0)} {op}, {counts[most]} ranks {most}"


def _number(rank: RasRank, communicator: Communicator, ranks: Mapping[int, tuple[Rank, Snapshot]]) -> int | None:
    """The job's number of a communicator's rank: its own where all ranks are in it, else that of its process."""
    world = max((each.world for each, _ in ranks.values()), default=communicator.size)
    if communicator.size == world:
        return rank.rank
    same = [number for number, (each, _) in ranks.items() if each.pid == rank.pid]
    return same[0] if len(same) == 1 else None
