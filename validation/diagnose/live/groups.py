"""Ranks that stand at the same place are one row: a thousand ranks fit on a screen. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from validation.diagnose.finding import Standing
from validation.diagnose.live.snapshot import Rank, Snapshot
from validation.diagnose.live.stand import Stand, stand

MOST_ROWS = 200
"""Kept; a terminal shows the first ones."""
LEAST_S = 0.1
"""Seconds of an interval from which CPU time tells something."""
MOST_PERCENT = 100_000


def ranks_of(snapshots: Sequence[Snapshot]) -> dict[int, tuple[Rank, Snapshot]]:
    """Each rank with the node that told of it; of two, the later."""
    found: dict[int, tuple[Rank, Snapshot]] = {}
    for snapshot in sorted(snapshots, key=lambda each: (each.time, each.node)):
        for rank in snapshot.ranks:
            found[rank.rank] = (rank, snapshot)
    return dict(sorted(found.items()))


def grouped(snapshots: Sequence[Snapshot]) -> tuple[Standing, ...]:
    """Rows of the table, the smallest group first: whoever stands alone is looked for."""
    ranks = ranks_of(snapshots)
    rows: dict[tuple[str, ...], list[int]] = defaultdict(list)
    stands = {number: stand(rank) for number, (rank, _) in ranks.items()}
    for number, (rank, _) in ranks.items():
        rows[_key(stands[number], rank)].append(number)
    made = [_row(numbers, ranks, stands[numbers[0]]) for numbers in rows.values()]
    return tuple(sorted(made, key=lambda each: (len(each.ranks), each.ranks)))[:MOST_ROWS]


def _key(at: Stand, rank: Rank) -> tuple[str, ...]:
    # Of ranks that move, a sample of the moment: they would fill a row each.
    where = "" if rank.moved else at.where
    return at.doing.value if not rank.moved else "", where, at.op if not rank.moved else ""


def _row(numbers: Sequence[int], ranks: Mapping[int, tuple[Rank, Snapshot]], at: Stand) -> Standing:
    mine = [ranks[number][0] for number in numbers]
    steps = [each.step for each in mine if each.step is not None]
    moves = bool(mine[0].moved)
    return Standing(
        ranks=tuple(numbers),
        doing="moves" if moves else " ".join(filter(None, (at.doing.value, f"({at.op})" if at.op else ""))),
        where="" if moves and len(mine) > 1 else at.where,
        states="".join(sorted({each.state for each in mine})),
        wchans=tuple(sorted({each.wchan for each in mine if each.wchan})[:4]),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        nodes=tuple(sorted({ranks[number][1].node for number in numbers})),
        cpu_percent=_busy(mine, ranks[numbers[0]][1].interval_s),
    )


def _busy(mine: Sequence[Rank], interval_s: float) -> int | None:
    spent = [each.cpu_s for each in mine if each.cpu_s is not None]
    if not spent or interval_s < LEAST_S:
        return None
    return min(MOST_PERCENT, round(100 * sum(spent) / len(spent) / interval_s))
