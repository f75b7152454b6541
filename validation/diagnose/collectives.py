"""What the watchdogs of several ranks say together: who is behind, and who does not wait with the others. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from validation.diagnose.finding import Found, Line

WHOLE = ("", "0")
"""The group of all ranks, which torch makes first; older versions name none."""

TIMED_OUT = "torch.watchdog.timeout"
"""The rule of a watchdog's line. Older torch did not count collectives: there all are the same one."""

MOST_NAMED = 8
"""Ranks. Where more are odd, none of them is."""


def told(found: Iterable[Found]) -> Iterator[Line]:
    """Lines that rules know, from timeouts that say which collective a rank waits in (`seq`), in each group apart."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    file = ""
    found = tuple(found)
    for each in found:
        rank, number = _number(each.takes.get("rank")), _number(each.takes.get("seq"))
        rank = each.line.rank if rank is None else rank
        number = 0 if number is None and each.rule == TIMED_OUT else number
        if rank is not None and number is not None:
            at = groups[each.takes.get("group", "")]
            at[rank] = max(number, at.get(rank, number))
            file = file or each.line.file
    alive = _alive(found)
    for group, at in groups.items():
        yield from _of_group(file, at, alive, whole=group in WHOLE)


def _alive(found: Sequence[Found]) -> frozenset[int]:
    """Ranks of which a line is no older than the first watchdog's."""
    waited = min((each.line.time for each in found if "seq" in each.takes and each.line.time), default=None)
    if waited is None:
        return frozenset()
    return frozenset(
        each.line.rank
        for each in found
        if each.line.rank is not None and (time := each.last or each.line.time) is not None and time >= waited
    )


def _of_group(file: str, at: Mapping[int, int], alive: frozenset[int], whole: bool) -> Iterator[Line]:
    if len(at) < 2:
        return
    newest = max(at.values())
    behind = sorted(rank for rank, number in at.items() if number < newest)
    if behind and len(behind) <= min(MOST_NAMED, len(at) // 2):
        for rank in behind:
            yield _line(file, rank, f"rank {rank} waits in collective {at[rank]}, {len(at) - len(behind)} in {newest}")
        return
    usual, count = Counter(at.values()).most_common(1)[0]
    if behind and count > len(at) // 2 and len(at) - count <= MOST_NAMED:
        for rank in sorted(rank for rank, number in at.items() if number > usual):
            yield _line(file, rank, f"rank {rank} waits in a later collective, {at[rank]}, and {count} in {usual}")
        return
    few = min(MOST_NAMED, len(at) // 2)
    if not whole or max(at) >= len(at) + few:  # who is in another group is not known, and who are many is not odd
        return
    silent = sorted(set(range(max(at) + 1)) - at.keys())
    if silent:
        for rank in silent:
            is_there = "is there and " if rank in alive else ""
            text = f"rank {rank} {is_there}does not wait in collective {newest}, {len(at)} ranks do"
            yield _line(file, rank, text)


def _line(file: str, rank: int, text: str) -> Line:
    return Line(file, 0, f"watchdogs together: {text}", None, rank, None)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 16 else None
