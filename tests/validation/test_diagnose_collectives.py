"""Watchdogs together name the rank that is behind or silent, and nobody where too many differ."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from validation.diagnose.collectives import TIMED_OUT, told
from validation.diagnose.finding import Found, Line


def waits(rank: int, seq: int, **takes: str) -> Found:
    return Found("any", Line("job.log", 1, "", None, rank, None), {"seq": str(seq), **takes}, 1, None)


def texts(*founds: Found) -> list[str]:
    return [line.text.removeprefix("watchdogs together: ") for line in told(founds)]


def test_the_rank_that_is_behind_is_named() -> None:
    assert texts(*(waits(rank, 17 if rank == 3 else 18) for rank in range(8))) == [
        "rank 3 waits in collective 17, 7 in 18"
    ]


def test_the_rank_that_says_nothing_is_named() -> None:
    found = texts(*(waits(rank, 18) for rank in range(8) if rank != 5))
    assert found == ["rank 5 does not wait in collective 18, 7 ranks do"]


def test_where_half_of_them_differ_nobody_is_accused() -> None:
    assert texts(*(waits(rank, 18 - rank) for rank in range(8))) == []
    assert texts(waits(0, 5), waits(63, 5)) == []
    assert texts(waits(0, 5)) == []


def test_a_rank_of_any_number_costs_no_memory() -> None:
    """A rank is what a text says it is; the ranks below it are not counted one by one."""
    assert texts(waits(0, 5), waits(10**14, 5), waits(7, 5)) == []


def test_groups_count_apart_and_who_is_in_one_is_not_known() -> None:
    assert (
        texts(*(waits(rank, 900, group="0") for rank in range(8)), *(waits(rank, 17, group="3") for rank in (4, 6)))
        == []
    )
    found = texts(*(waits(rank, 17 if rank == 6 else 18, group="3") for rank in (2, 4, 6)))
    assert found == ["rank 6 waits in collective 17, 2 in 18"]


def test_the_rank_that_is_ahead_alone_is_named() -> None:
    assert texts(*(waits(rank, 41 if rank == 0 else 39) for rank in range(4))) == [
        "rank 0 waits in a later collective, 41, and 3 in 39"
    ]


def test_a_silent_rank_that_is_seen_later_is_there() -> None:
    at = datetime(2026, 11, 30, 16, 0, tzinfo=UTC)
    others = [replace(waits(rank, 18), line=Line("job.log", 1, "", at, rank, None)) for rank in range(8) if rank != 5]
    for seconds, is_there in ((-60, ""), (60, "is there and ")):
        line = Line("rank-5.log", 1, "", at + timedelta(seconds=seconds), 5, None)
        seen = Found("any", line, {}, 1, line.time)
        assert texts(*others, seen) == [f"rank 5 {is_there}does not wait in collective 18, 7 ranks do"]


def test_watchdogs_that_do_not_count_tell_who_is_silent() -> None:
    found = [Found(TIMED_OUT, Line("job.log", 1, "", None, rank, None), {}, 1, None) for rank in range(1, 8)]
    assert texts(*found) == ["rank 0 does not wait in collective 0, 7 ranks do"]
