"""Which rank do the others wait for? What the ranks of a running job say together, as lines that rules know. Pure.

A synchronous job waits for its slowest rank: where all wait in a collective and one does not, that one is meant.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from policies.report.names import ranges
from validation.diagnose.finding import Line
from validation.diagnose.live import machines, ras
from validation.diagnose.live.groups import ranks_of
from validation.diagnose.live.snapshot import Rank, Snapshot
from validation.diagnose.live.stand import ONE_TO_ONE, Doing, Stand, stand

MOST_NAMED = 32
"""Ranks that are told one by one. Of more, they are told together: it is nobody's own."""
MOST_MISSING = 1024
LEAST_LOOKS = 6
SELDOM = 1 / 8
"""Of the times that it was looked at: who waits no oftener is waited for, where all others wait in the rest of them."""
BUSY = 0.5
"""Of one processor over the interval: from here on a rank computes."""

_ALWAYS = (Doing.STOPPED, Doing.TRACED, Doing.DEBUGGER, Doing.ENDED, Doing.STORAGE, Doing.KERNEL)
"""What is no usual place to be in for long, whatever the others do."""

_PLAIN = (Doing.OWN, Doing.SLEEPS)
"""What says of a rank no more than where it is."""

Ranks = Mapping[int, tuple[Rank, Snapshot]]


def told(snapshots: Sequence[Snapshot]) -> Iterator[Line]:
    """What the snapshots of a job's nodes say together: lines that `live.*` rules know."""
    ranks = ranks_of(snapshots)
    stands = {number: stand(rank) for number, (rank, _) in ranks.items()}
    yield from _progress(ranks)
    gone = list(_missing(ranks, snapshots))
    yield from gone
    if moving := not gone and _moves(ranks, stands):
        yield _move(ranks)
        yield from _least_waiting(ranks)
    else:
        yield from _odd(ranks, stands, alone=not gone, whole=_whole(ranks, snapshots))
    for each in snapshots:
        yield from machines.told(each)
    yield from ras.told(snapshots, ranks, settled=not moving)
    for each in snapshots:
        if not each.answered:
            why = each.missed[0] if each.missed else "it said nothing"
            yield _line(each, None, f"node {each.node} does not answer: {why}", timed=True)


def missing(snapshots: Sequence[Snapshot]) -> tuple[int, ...]:
    """Ranks of the job's size that were not seen, whether their nodes were looked at or not."""
    ranks = ranks_of(snapshots)
    world = max((rank.world for rank, _ in ranks.values()), default=0)
    return tuple(number for number in range(min(world, MOST_MISSING + len(ranks))) if number not in ranks)


def _line(snapshot: Snapshot | None, rank: int | None, text: str, timed: bool = True) -> Line:
    file = snapshot.name if snapshot else "snapshots"
    time = snapshot.time if snapshot and timed else None
    return Line(file, 0, f"live: {text}", time, rank, snapshot.node if snapshot else None)


def _progress(ranks: Ranks) -> Iterator[Line]:
    """Since when each runs, so that older lines of its node are not its own; and how far it came."""
    begun = [(rank.started, number) for number, (rank, _) in ranks.items() if rank.started is not None]
    if begun:
        started, number = min(begun)
        snapshot = ranks[number][1]
        yield Line(snapshot.name, 0, f"live: rank {number} was started", started, number, snapshot.node)
    for number, (rank, snapshot) in ranks.items():
        if rank.step is not None:
            rises = rank.step_before is not None and rank.step > rank.step_before
            yield _line(snapshot, number, f"rank {number} is at step {rank.step}", timed=rises)


def _moves(ranks: Ranks, stands: Mapping[int, Stand]) -> bool:
    """Whether the job goes on: steps rise, or ranks come out of collectives, which takes all of them."""
    if not ranks or any(at.doing in (Doing.STOPPED, Doing.TRACED, Doing.DEBUGGER) for at in stands.values()):
        return False
    mine = [rank for rank, _ in ranks.values()]
    if any(_rises(each) for each in mine):
        return True
    if all(each.moved for each in mine):
        return len(mine) == 1 or any(each.left or not in_wait(stands, each) for each in mine)
    return any(each.left for each in mine) and 2 * sum(bool(each.moved) for each in mine) >= len(mine)


def in_wait(stands: Mapping[int, Stand], rank: Rank) -> bool:
    """Whether a rank waits for others."""
    return stands[rank.rank].doing.waits


def _rises(rank: Rank) -> bool:
    return rank.step is not None and rank.step_before is not None and rank.step > rank.step_before


def _move(ranks: Ranks) -> Line:
    first = next(iter(ranks.values()))[1]
    rising = [rank for rank, _ in ranks.values() if _rises(rank)]
    by = [(rank.step or 0) - (rank.step_before or 0) for rank in rising]
    what = (
        f"steps of {len(rising)} ranks rose by {min(by)} to {max(by)} in {first.interval_s:.1f} s"
        if rising
        else f"ranks left collectives and stood elsewhere within {first.interval_s:.1f} s"
    )
    return _line(first, None, f"{len(ranks)} ranks go on: {what}")


def _least_waiting(ranks: Ranks) -> Iterator[Line]:
    """The rank that the others always wait for, and that waits for nobody, is the slow one."""
    looked = {number: rank for number, (rank, _) in ranks.items() if rank.looks >= LEAST_LOOKS}
    seldom = [number for number, rank in looked.items() if rank.waits <= rank.looks * SELDOM]
    often = [number for number, rank in looked.items() if rank.waits >= rank.looks * (1 - SELDOM)]
    if len(seldom) == 1 and len(often) == len(ranks) - 1 >= 2:
        rank, snapshot = ranks[seldom[0]]
        text = f"rank {rank.rank} waits least: {rank.waits} of {rank.looks} times, {len(often)} others nearly always"
        yield _line(snapshot, rank.rank, text)


def _missing(ranks: Ranks, snapshots: Sequence[Snapshot]) -> Iterator[Line]:
    """Ranks without a process, on nodes that were looked at."""
    told: set[int] = set()
    for snapshot in (each for each in snapshots if not each.unread):
        mine = [rank for rank in snapshot.ranks if rank.local_rank is not None and rank.local_world is not None]
        there = {rank.local_rank for rank in mine}
        buried = f"; {snapshot.ended[0].name} ({snapshot.ended[0].pid}) has ended beside it" if snapshot.ended else ""
        in_a_row = len({rank.rank - (rank.local_rank or 0) for rank in mine}) == 1
        for rank in mine[:1] if in_a_row else []:
            first, size = rank.rank - (rank.local_rank or 0), rank.local_world or 0
            if size <= MOST_MISSING and len(there) < size:
                for local in sorted(set(range(size)) - there):
                    if (number := first + local) not in ranks and 0 <= number < rank.world:
                        told.add(number)
                        yield _line(
                            snapshot,
                            None,
                            f"rank {number} has no process on node {snapshot.node}, "
                            f"{len(there)} of {size} ranks there have{buried}",
                        )
    absent = [number for number in missing(snapshots) if number not in told] if _all_nodes(snapshots) else []
    for number in absent[:MOST_NAMED]:
        yield _line(None, None, f"rank {number} has no process on any node of the job, {len(ranks)} ranks have")


def _all_nodes(snapshots: Sequence[Snapshot]) -> bool:
    asked = max((each.asked for each in snapshots), default=0)
    seen = all(each.answered and not each.unread for each in snapshots)
    return bool(asked) and len(snapshots) >= asked and seen


def _whole(ranks: Ranks, snapshots: Sequence[Snapshot]) -> bool:
    """Whether all ranks of the job are seen, and each with its stack."""
    return not missing(snapshots) and all(rank.main is not None for rank, _ in ranks.values())


def _odd(ranks: Ranks, stands: Mapping[int, Stand], alone: bool, whole: bool) -> Iterator[Line]:
    """`alone`: no rank is gone, so what the others do differently counts."""
    if len(ranks) > 1 and all(at.doing is Doing.STOPPED for at in stands.values()):
        yield _line(_of(ranks, min(ranks)), None, f"all {len(ranks)} ranks are stopped")
        return
    waiting = {number for number, at in stands.items() if at.doing.waits}
    hard = {number for number, at in stands.items() if at.doing in _ALWAYS}
    others = sorted(stands.keys() - waiting - hard)
    usual = _usual(stands, waiting)
    for doing, numbers in _by_doing(stands, sorted(hard)):
        yield from _told(ranks, stands, doing, numbers, usual)
    if _elsewhere_most(stands):
        yield from _apart(ranks, stands, sorted(stands.keys() - hard))
    elif waiting or len(ranks) == 1:
        for doing, numbers in _by_doing(stands, [each for each in others if not _unread(ranks, stands, each)]):
            yield from _told(ranks, stands, doing, numbers, usual)
    elif alone and not hard:
        yield from _apart(ranks, stands, others)
    if not others and not hard and len(waiting) > 1 and alone:
        yield from _collectives(ranks, stands, whole)
    if alone:
        yield from _behind(ranks)


def _elsewhere_most(stands: Mapping[int, Stand]) -> bool:
    """Whether most are at one place of their own code, as where they wait for their GPU within a call of C."""
    if len(stands) < 3:
        return False
    (doing, _), count = Counter((at.doing, at.where) for at in stands.values()).most_common(1)[0]
    return doing in _PLAIN and count > len(stands) / 2


def _unread(ranks: Ranks, stands: Mapping[int, Stand], number: int) -> bool:
    """Not having been able to look says nothing of a rank."""
    return stands[number].doing is Doing.UNSEEN and ranks[number][0].main is None


def _of(ranks: Ranks, number: int) -> Snapshot:
    return ranks[number][1]


def _by_doing(stands: Mapping[int, Stand], numbers: Sequence[int]) -> Iterator[tuple[Doing, list[int]]]:
    groups: dict[Doing, list[int]] = defaultdict(list)
    for number in numbers:
        groups[stands[number].doing].append(number)
    yield from groups.items()


def _usual(stands: Mapping[int, Stand], waiting: set[int]) -> str:
    """What most of those that wait do."""
    if not waiting:
        return ""
    (op, where), count = Counter((stands[each].op, stands[each].where) for each in waiting).most_common(1)[0]
    return f", {count} of {len(stands)} ranks wait in {op or 'it'} at {where or 'an unknown place'}"


def _told(
    ranks: Ranks, stands: Mapping[int, Stand], doing: Doing, numbers: Sequence[int], usual: str
) -> Iterator[Line]:
    if len(numbers) > MOST_NAMED or (len(numbers) > 1 and 2 * len(numbers) > len(ranks) and doing not in _ALWAYS):
        at = stands[numbers[0]]
        text = f"ranks {ranges(numbers)[:120]} {_words(ranks[numbers[0]], at, many=True)}{_where(at)}"
        yield _line(_of(ranks, numbers[0]), None, text + usual)
        return
    for number in numbers:
        at, rank = stands[number], ranks[number][0]
        told = f"rank {number} {_words(ranks[number], at, many=False)}{_where(at)}{_state(rank)}"
        yield _line(_of(ranks, number), number, told + usual)


def _words(of: tuple[Rank, Snapshot], at: Stand, many: bool) -> str:
    """The words by which rules know it."""
    rank, snapshot = of
    be = "are" if many else "is"
    if at.doing is Doing.STORAGE:
        return f"{'wait' if many else 'waits'} for {at.op}{f' by {at.who}' if at.who else ''}"
    if at.doing is Doing.OWN:
        return f"{be} in own code{' and computes' if _computes(rank, snapshot) else ''}"
    return {
        Doing.STOPPED: f"{be} stopped by a signal",
        Doing.TRACED: f"{be} held by a debugger from outside{f', process {rank.traced_by}' if rank.traced_by else ''}",
        Doing.ENDED: f"{be} there no more but as a zombie",
        Doing.DEBUGGER: f"{be} in Python's debugger",
        Doing.DATA: f"{be} in the data loader",
        Doing.SAVING: f"{be} in saving a checkpoint",
        Doing.EXITING: f"{be} at its end or in an exception",
        Doing.IMPORTING: f"{be} in an import",
        Doing.COMPILING: f"{be} in a compiler",
        Doing.PIPE: f"{be} in a pipe or terminal that nobody writes to or reads",
        Doing.LOCK: f"{be} in a lock",
        Doing.SLEEPS: f"{be} in a lock or another call that sleeps",
        Doing.INTERPRETER: f"{be} kept from the interpreter by {at.who}",
        Doing.KERNEL: f"{be} in the kernel and cannot be interrupted",
        Doing.UNSEEN: f"{be} in no Python code",
    }.get(at.doing, f"{be} elsewhere")


def _computes(rank: Rank, snapshot: Snapshot) -> bool:
    return rank.state == "R" and rank.cpu_s is not None and rank.cpu_s > BUSY * snapshot.interval_s > 0


def _where(at: Stand) -> str:
    return f" at {at.where}" if at.where else ""


def _state(rank: Rank) -> str:
    known = ", ".join(filter(None, (rank.state, rank.wchan)))
    return f" ({known})" if known else ""


def _apart(ranks: Ranks, stands: Mapping[int, Stand], others: Sequence[int]) -> Iterator[Line]:
    """Nobody is known to wait, as where a program waits for its GPU in a library's call: who is not where most are?"""
    seen = [each for each in others if stands[each].where]
    if len(seen) < 3:
        return
    usual, count = Counter((stands[each].doing, stands[each].where) for each in seen).most_common(1)[0]
    odd = [each for each in seen if (stands[each].doing, stands[each].where) != usual]
    if not odd:
        what = f"{len(seen)} of {len(ranks)} ranks stand"
        doing, where = usual
        if doing in (Doing.DATA, Doing.SAVING, Doing.IMPORTING, Doing.LOCK, Doing.PIPE, Doing.EXITING):
            yield from _told(ranks, stands, doing, seen, "")
        else:
            yield _line(_of(ranks, seen[0]), None, f"{what} at {where} and nobody elsewhere")
    elif count > len(seen) / 2 and len(odd) <= MOST_NAMED:
        most = f", {count} of {len(ranks)} ranks at {usual[1]}"
        for each in odd:
            if stands[each].doing in _PLAIN or stands[each].doing.waits:
                text = f"rank {each} stands apart{_where(stands[each])}{_state(ranks[each][0])}"
                yield _line(_of(ranks, each), each, text + most)
            else:
                yield from _told(ranks, stands, stands[each].doing, [each], most)


def _collectives(ranks: Ranks, stands: Mapping[int, Stand], whole: bool) -> Iterator[Line]:
    """All wait: in the same collective, at the same line?"""
    if any(at.op in ONE_TO_ONE for at in stands.values()):
        return  # stages of a pipeline wait for each other in different ones, and are right
    for what, word in (("op", "another collective"), ("where", "the same collective at another line")):
        values = Counter(getattr(at, what) for at in stands.values())
        if len(values) < 2:
            continue
        usual, count = values.most_common(1)[0]
        if count <= len(stands) / 2:
            shown = "; ".join(
                f"ranks {ranges(_with(stands, what, each))[:60]} in {each}" for each in sorted(values)[:4]
            )
            at = "collectives" if what == "op" else "lines"
            yield _line(
                _of(ranks, min(stands)), None, f"ranks wait in different {at}, no side is the majority: {shown}"
            )
            return
        some = stands[_with(stands, what, usual)[0]]
        odd = [number for number, at in stands.items() if getattr(at, what) != usual]
        for number in odd[:MOST_NAMED]:
            at_ = stands[number]
            yield _line(
                _of(ranks, number),
                number,
                f"rank {number} waits in {word}, {at_.op}{_where(at_)}, "
                f"{count} of {len(stands)} in {some.op}{_where(some)}",
            )
        return
    if whole:
        same = next(iter(stands.values()))
        how = "wait to start" if same.doing is Doing.MEETS else "wait"
        text = f"all {len(stands)} ranks {how} in {same.op or 'the same call'}{_where(same)} and none comes out of it"
        yield _line(_of(ranks, min(stands)), None, text)


def _with(stands: Mapping[int, Stand], what: str, value: str) -> list[int]:
    return [number for number, at in stands.items() if getattr(at, what) == value]


def _behind(ranks: Ranks) -> Iterator[Line]:
    """By metrics, which count every step: a log's last line may be of any."""
    steps = {number: rank.step for number, (rank, _) in ranks.items() if rank.exact_step and rank.step is not None}
    if len(steps) < 3:
        return
    usual, count = Counter(steps.values()).most_common(1)[0]
    behind = [number for number, step in steps.items() if step < usual]
    if behind and count > len(steps) / 2 and len(behind) <= MOST_NAMED:
        for number in behind:
            text = f"rank {number} has come to step {steps[number]} only, {count} of {len(steps)} to {usual}"
            yield _line(_of(ranks, number), number, text)
