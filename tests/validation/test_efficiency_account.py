"""Where GPU time went: shares add up to the whole, nothing is negative, and what was not measured is never zero."""

import random
from collections.abc import Sequence
from math import fsum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.place import Place
from runtime.telemetry.goodput import Back, Beat, Carried, Ledger, Line, Started, Stepped, Waited
from runtime.telemetry.journal import RESTORED, Journal, history, read
from runtime.telemetry.record import Event, Step
from validation.efficiency.account import report
from validation.efficiency.accounting import Accounting, Job
from validation.efficiency.figures import Report, Sum
from validation.efficiency.history import Cause, Run
from validation.efficiency.prices import Prices

HOUR = 3600


def job(id: str = "1", start_s: int = 0, end_s: int | None = 10 * HOUR, gpus: int = 8, **more: object) -> Job:
    return Job.model_validate(
        {
            "id": id,
            "state": "COMPLETED" if end_s is not None else "RUNNING",
            "user": "ada",
            "partition": "train",
            "start_s": start_s,
            "end_s": end_s,
            "gpus": {"h100": gpus},
            **more,
        }
    )


def stepped(at_s: float, first: int, last: int, seconds: float, **more: object) -> Stepped:
    useful = last - first + 1
    return Stepped.model_validate(
        {"at_s": at_s, "first": first, "last": last, "useful": useful, "seconds": seconds, **more}
    )


def made(jobs: Sequence[Job], *runs: Run, now_s: float = 100 * HOUR, prices: Prices = Prices(gpu_hour=2)) -> Report:  # noqa: B008
    return report(Accounting(jobs=tuple(jobs)), runs, prices, now_s)


def hours_of(sum_: Sum) -> dict[str, float | None]:
    return {cause.value: share.gpu_hours for cause, share in sum_.causes.items()}


def test_a_job_that_failed_once_is_told_by_cause() -> None:
    lines: list[Line] = [
        Started(at_s=1800, attempt="1.0.ab", world=8),
        stepped(2 * HOUR, 1, 100, 3600, parts={"data": 360.0, "checkpoint": 180.0, "communication": 720.0}),
        stepped(3 * HOUR, 101, 200, 3600, parts={"data": 360.0}),
        Started(at_s=4 * HOUR, attempt="1.1.cd", world=8),
        Back(at_s=4.25 * HOUR, step=150),
        stepped(9 * HOUR, 151, 600, 4.5 * HOUR, parts={"data": 0.45 * HOUR}),
    ]
    found = made([job()], Run("r", tuple(lines))).total
    assert hours_of(found) == {
        "useful": pytest.approx(8 * (0.85 + 0.45 + 4.05)),
        "start": pytest.approx(8 * (1 + 0.5)),
        "checkpoint": pytest.approx(8 * 0.05),
        "data": pytest.approx(8 * (0.1 + 0.05 + 0.45)),
        "failure": pytest.approx(8 * (0.5 + 1)),  # half of the second hour was undone; an hour without a start
        "straggler": None,
        "idle": pytest.approx(8 * 1),
        "unknown": pytest.approx(0),
    }
    assert found.useful_steps == pytest.approx(600)
    assert found.cost == pytest.approx(160)
    assert found.useful_steps_per_cost == pytest.approx(600 / 160)
    assert found.communication == pytest.approx(720 / (6.5 * HOUR))


def test_without_a_journal_nothing_is_claimed() -> None:
    made_of = made([job(state="FAILED")])
    assert {name for name, value in hours_of(made_of.total).items() if value is not None} == {"unknown"}
    assert made_of.total.causes[Cause.UNKNOWN].gpu_hours == 80
    for figure in ("goodput", "useful_steps", "useful_steps_per_cost", "gpu_busy", "communication", "queue_hours"):
        assert getattr(made_of.total, figure) is None, figure
    assert made_of.total.broken_gpu_hours == 80
    assert made_of.jobs[0].not_explained
    assert made([job()], prices=Prices()).total.cost is None


def waited(first: int, last: int, seconds: float, rank: int = 3, node: str = "gpu-1", **more: object) -> Waited:
    return Waited.model_validate(
        {"at_s": 0, "first": first, "last": last, "seconds": seconds, "rank": rank, "node": node, **more}
    )


def test_waits_for_the_slowest_are_a_loss_whose_node_is_named() -> None:
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        stepped(HOUR, 1, 100, HOUR, parts={"forward": 1.0}),
        waited(1, 50, 360, rank=9, node="gpu-1", phase="forward"),
        waited(51, 90, 180, rank=8, node="gpu-1", phase="data"),
        stepped(2 * HOUR, 101, 200, HOUR, parts={"forward": 1.0}),
        waited(91, 110, 72, rank=0, node="gpu-0"),
    )
    found = made([job(end_s=2 * HOUR)], Run("r", lines))
    share = found.total.causes[Cause.STRAGGLER]
    assert share.gpu_hours == pytest.approx(8 * (360 + 180 + 72) / HOUR)
    assert share.measured_gpu_hours == pytest.approx(8 * 1.1)  # of 90 steps nobody knows
    assert found.total.causes[Cause.USEFUL].gpu_hours == pytest.approx(16 - 8 * 612 / HOUR)
    first, second = found.jobs[0].slowest
    assert (first.node, first.ranks, first.phases) == ("gpu-1", [9, 8], ["forward", "data"])
    assert (second.node, second.ranks, second.phases) == ("gpu-0", [0], [])
    assert first.gpu_hours == pytest.approx(8 * 540 / HOUR)


def test_what_rank_0_was_slow_in_counts_once() -> None:
    """Seven of eight ranks waited while rank 0 waited for data: an eighth of that time went into data."""
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        stepped(HOUR, 1, 100, HOUR, parts={"data": 800.0}),
        waited(1, 60, 420, rank=0, phase="data", parts={"data": 60.0}),
        waited(61, 100, 280, rank=0, phase="data", parts={"data": 40.0}),
    )
    found = made([job(end_s=HOUR)], Run("r", lines)).total
    assert found.causes[Cause.DATA].gpu_hours == pytest.approx(8 * 100 / HOUR)
    assert found.causes[Cause.STRAGGLER].gpu_hours == pytest.approx(8 * 700 / HOUR)
    half = made([job(end_s=HOUR)], Run("r", lines[:-1])).total
    assert half.causes[Cause.DATA].gpu_hours == pytest.approx(8 * (60 + 320) / HOUR)


def test_waits_of_steps_that_were_undone_and_done_again_count_where_they_were() -> None:
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        stepped(HOUR, 1, 100, HOUR),
        waited(1, 100, 360),
        Back(at_s=HOUR, step=50),
        stepped(2 * HOUR, 51, 150, HOUR),
        waited(51, 150, 720),
        waited(51, 150, 720),  # a line that came twice
    )
    found = made([job(end_s=2 * HOUR)], Run("r", lines)).total
    assert found.causes[Cause.STRAGGLER].gpu_hours == pytest.approx(8 * (180 + 720) / HOUR)
    assert found.causes[Cause.FAILURE].gpu_hours == pytest.approx(4)
    assert found.causes[Cause.STRAGGLER].measured_gpu_hours == pytest.approx(16)


@pytest.mark.parametrize("parts", [{}, {"forward": 1.0}])
def test_a_phase_that_no_line_names_was_not_measured(parts: dict[str, float]) -> None:
    lines = (Started(at_s=1, attempt="1.0", world=8), stepped(HOUR, 1, 9, HOUR, parts=parts))
    found = made([job()], Run("r", lines)).total
    assert found.causes[Cause.DATA].gpu_hours is None
    assert found.causes[Cause.CHECKPOINT].gpu_hours is None
    assert found.communication is None


def test_lines_without_phases_beside_lines_with_them_make_the_phases_unknown() -> None:
    lines = (
        Started(at_s=1, attempt="1.0", world=8),
        stepped(HOUR, 1, 9, HOUR),
        stepped(2 * HOUR, 10, 19, HOUR, parts={"data": 60.0}),
    )
    assert made([job()], Run("r", lines)).total.causes[Cause.DATA].gpu_hours is None


def test_time_that_older_lines_were_folded_into_is_not_explained() -> None:
    folded = Carried(
        at_s=5 * HOUR, began_s=0, world=8, segments=[(1, 50, 50, 100.0)], lost_steps=0, lost_s=0, paused_s=0,
        rank_s=0, paused_rank_s=0, starts=1,
    )  # fmt: skip
    lines = (folded, Started(at_s=6 * HOUR, attempt="1.1", world=8), stepped(8 * HOUR, 51, 99, HOUR))
    found = made([job()], Run("r", lines)).total
    assert found.causes[Cause.UNKNOWN].gpu_hours == pytest.approx(40)
    assert found.causes[Cause.USEFUL].measured_gpu_hours == pytest.approx(40)


@pytest.mark.parametrize(
    ("attempt", "jobs", "owned"),
    [
        ("1.0.ab", frozenset(), True),
        ("none.0.ab", frozenset(), False),
        ("none.0.ab", frozenset({"1"}), True),
        ("2.0.ab", frozenset(), False),
        ("11.0.ab", frozenset(), False),
    ],
)
def test_a_start_belongs_to_the_job_that_it_names_and_else_is_said_to_belong_to_none(
    attempt: str, jobs: frozenset[str], owned: bool
) -> None:
    lines = (Started(at_s=10, attempt=attempt, world=8), stepped(HOUR, 1, 2, 100))
    found = made([job()], Run("r", lines, jobs))
    assert (found.jobs[0].run == "r") is owned
    assert bool(found.problems) is not owned


def test_a_start_outside_a_jobs_time_is_not_its_own() -> None:
    lines = (Started(at_s=11 * HOUR, attempt="1.0", world=8), stepped(12 * HOUR, 1, 2, 100))
    found = made([job()], Run("r", lines))
    assert found.total.useful_steps is None
    assert found.problems


def test_two_runs_that_claim_a_job_explain_nothing_of_it() -> None:
    lines = (Started(at_s=10, attempt="1.0", world=8), stepped(HOUR, 1, 2, 100))
    found = made([job()], Run("a", lines), Run("b", lines))
    assert found.total.causes[Cause.UNKNOWN].gpu_hours == 80
    assert "several runs" in (found.jobs[0].not_explained or "")


def test_work_that_a_later_job_undid_is_lost_in_the_job_that_did_it() -> None:
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        stepped(HOUR, 1, 100, HOUR),
        Started(at_s=2 * HOUR, attempt="2.0", world=8),
        Back(at_s=2 * HOUR, step=50),
        stepped(3 * HOUR, 51, 150, HOUR),
    )
    first, second = made([job("1", 0, HOUR, state="NODE_FAIL"), job("2", 2 * HOUR, 3 * HOUR)], Run("r", lines)).jobs
    assert (first.useful_steps, second.useful_steps) == (50, 100)
    assert first.causes[Cause.FAILURE].gpu_hours == pytest.approx(4)
    assert second.causes[Cause.FAILURE].gpu_hours == pytest.approx(0)


def test_what_has_no_price_has_no_cost_and_is_said() -> None:
    prices = Prices(models={"h100": 3.0}, partitions={"old": 1.0})
    jobs = [job("1"), job("2", gpus=4, partition="old"), job("3").model_copy(update={"gpus": {"a100": 2}})]
    found = made(jobs, prices=prices)
    assert [each.cost for each in found.jobs] == [240, 40, None]
    assert found.total.cost == 280
    assert found.total.unpriced_gpu_hours == 20
    assert any("a100" in each for each in found.problems)


def test_gpu_use_and_waits_are_means_and_sums_of_what_was_measured() -> None:
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        Beat(at_s=10, gpu_busy=0.5),
        Beat(at_s=20),
        Beat(at_s=30, gpu_busy=1.0),
    )
    found = made([job(eligible_s=0, start_s=0), job("2")], Run("r", lines)).total
    assert found.gpu_busy == pytest.approx(0.75)
    assert found.gpu_busy_measured_gpu_hours == 80
    assert (found.queue_hours, found.queue_measured_jobs) == (0, 1)


def test_a_job_without_gpus_in_its_accounting_is_no_job_at_no_cost() -> None:
    found = made([job(gpus=0)])
    assert found.without_gpus == 1
    assert any("AccountingStorageTRES" in each for each in found.problems)


# Any journal, in any order of time, over any jobs: what must always hold.

TIMES = st.integers(0, 40 * 24 * HOUR)
STEPS = st.integers(0, 60)
LINES = st.one_of(
    st.builds(
        Started, at_s=TIMES, attempt=st.sampled_from(["1.0", "1.1", "2.0", "3.0.ab", "none.0"]), world=st.just(8)
    ),
    st.builds(
        Stepped,
        at_s=TIMES,
        first=STEPS,
        last=STEPS,
        useful=STEPS,
        seconds=st.floats(0, 1e6),
        parts=st.dictionaries(st.sampled_from(["data", "checkpoint", "communication", "x"]), st.floats(0, 1e6)),
    ),
    st.builds(Back, at_s=TIMES, step=st.integers(-1, 60)),
    st.builds(Beat, at_s=TIMES, gpu_busy=st.none() | st.floats(0, 1)),
    st.builds(
        Waited,
        at_s=TIMES,
        first=STEPS,
        last=STEPS,
        seconds=st.floats(0, 1e300),
        parts=st.dictionaries(st.sampled_from(["data", "checkpoint"]), st.floats(0, 1e300)),
        rank=st.integers(0, 3),
        node=st.sampled_from(["a", "b\x1b"]),
        phase=st.none() | st.sampled_from(["data", "rest"]),
    ),
)


@st.composite
def jobs_of(draw: st.DrawFn) -> list[Job]:
    made = []
    for id in ("1", "2", "3", "4"):
        start = draw(TIMES)
        long = draw(st.none() | st.integers(0, 30 * 24 * HOUR))
        state = draw(st.sampled_from(["COMPLETED", "FAILED", "CANCELLED"])) if long is not None else "RUNNING"
        who = draw(st.sampled_from(["ada", "", "böse\x1b[2J<b>"]))
        made.append(
            job(id, start, None if long is None else start + long, draw(st.integers(0, 16)), state=state, user=who)
        )
    return made


def sums(found: Report) -> list[Sum]:
    return [found.total, *found.weeks, *found.users, *found.jobs]


@given(jobs=jobs_of(), lines=st.lists(LINES, max_size=30), more=st.lists(LINES, max_size=5))
def test_shares_add_up_nothing_is_negative_and_parts_make_the_whole(
    jobs: list[Job], lines: list[Line], more: list[Line]
) -> None:
    found = made(jobs, Run("r", tuple(lines)), Run("s", tuple(more), frozenset({"3"})), now_s=60 * 24 * HOUR)
    for each in sums(found):
        shares = [share.gpu_hours for share in each.causes.values() if share.gpu_hours is not None]
        assert fsum(shares) == pytest.approx(each.gpu_hours, abs=1e-6)
        assert min(shares, default=0) >= 0
        assert all(0 <= share.measured_gpu_hours <= each.gpu_hours + 1e-6 for share in each.causes.values())
        for ratio in (each.goodput, each.gpu_busy, each.communication):
            assert ratio is None or 0 <= ratio <= 1
    for one in found.jobs:
        waited = fsum(each.gpu_hours for each in one.slowest)
        assert waited == pytest.approx(one.causes[Cause.STRAGGLER].gpu_hours or 0, abs=1e-6)
    for parts in (found.weeks, found.users, found.jobs):
        assert fsum(each.gpu_hours for each in parts) == pytest.approx(found.total.gpu_hours)
        assert fsum(each.cost or 0 for each in parts) == pytest.approx(found.total.cost or 0)
        assert fsum(each.useful_steps or 0 for each in parts) == pytest.approx(found.total.useful_steps or 0, abs=1e-6)
        for cause in Cause:
            of_parts = fsum(each.causes[cause].gpu_hours or 0 for each in parts)
            assert of_parts == pytest.approx(found.total.causes[cause].gpu_hours or 0, abs=1e-6)


@given(jobs=jobs_of(), lines=st.lists(LINES, max_size=20), seed=st.integers())
def test_the_order_of_the_input_does_not_matter(jobs: list[Job], lines: list[Line], seed: int) -> None:
    runs = [Run("r", tuple(lines)), Run("s", tuple(lines), frozenset({"4"}))]
    found = made(jobs, *runs)
    random.Random(seed).shuffle(jobs)  # noqa: S311 - an order, no secret
    again = made(jobs, *reversed(runs))
    for one, other in zip(
        [found.total, *found.weeks, *found.users], [again.total, *again.weeks, *again.users], strict=True
    ):
        assert one == other
    assert sorted(found.jobs, key=lambda each: each.id) == sorted(again.jobs, key=lambda each: each.id)


@given(lines=st.lists(LINES.filter(lambda line: not isinstance(line, Started)), max_size=25))
def test_useful_steps_are_those_of_the_runtimes_own_ledger(lines: list[Line]) -> None:
    """For whole lines: of one that is cut, the ledger counts whole steps and this their share."""
    ledger = Ledger()
    whole = [Started(at_s=0, attempt="1.0", world=1)]
    for line in lines:
        if isinstance(line, Stepped):
            line = line.model_copy(update={"useful": max(0, line.last - line.first + 1)})
        whole.append(line)
    for line in whole:
        ledger.take(line)
    named = fsum(useful for _, _, useful, seconds in ledger.segments if seconds > 0)
    unnamed = fsum(useful for _, _, useful, seconds in ledger.segments if seconds == 0)
    found = made([job(end_s=41 * 24 * HOUR)], Run("r", tuple(whole)), now_s=60 * 24 * HOUR).total
    assert named - 1e-6 <= (found.useful_steps or 0) <= named + unnamed + 1e-6


def test_a_line_that_no_run_can_have_written_is_passed_over() -> None:
    lines = (
        Started(at_s=0, attempt="1.0", world=8),
        stepped(HOUR, 1, 10**400, 1e308),
        stepped(1e308, 1, 100, 1e308, parts={"data": 1e308, "checkpoint": 1e308}),
        Back(at_s=1e308, step=10**400),
        Beat(at_s=1e308, gpu_busy=1),
    )
    found = made([job()], Run("r", lines)).total
    assert found.useful_steps == 100
    assert fsum(share.gpu_hours or 0 for share in found.causes.values()) == pytest.approx(80)


def test_what_the_runtimes_own_journal_writes_explains_a_job_also_after_it_was_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def attempt(name: str, start_s: float, first: int, count: int, restored: int | None) -> None:
        nonlocal now
        now = start_s
        place = Place(world=8, attempt=name)
        journal = Journal(tmp_path / "goodput.jsonl", place, clock=lambda: now, gpu_busy=lambda: 0.5)
        if restored is not None:
            journal.take([Event(int((start_s + 50) * 1e9), RESTORED, "info", restored)])
        for number in range(first, first + count):
            now = start_s + 100 + 100 * (number - first + 1)
            parts = {"data": 10 * 10**9, "communication": 25 * 10**9, "checkpoint": 5 * 10**9 if number == first else 0}
            journal.take([Step(number, int((now - 100) * 1e9), int(now * 1e9), parts)])
        journal.close()

    attempt("1.0.aa", 100, 1, 10, None)
    attempt("1.0.bb", 2000, 8, 10, 7)  # steps 8 to 10 are undone; nothing from 1200 to 2000
    lines = tuple(history(tmp_path / "goodput.jsonl"))
    found = made([job(end_s=3600, gpus=1)], Run("r", lines)).total
    assert {cause: share.gpu_hours for cause, share in found.causes.items()} == {
        Cause.USEFUL: pytest.approx((1700 - 170 - 10) / 3600),
        Cause.START: pytest.approx(300 / 3600),
        Cause.CHECKPOINT: pytest.approx(10 / 3600),
        Cause.DATA: pytest.approx(170 / 3600),
        Cause.FAILURE: pytest.approx((300 + 800) / 3600),
        Cause.STRAGGLER: None,
        Cause.IDLE: pytest.approx(500 / 3600),
        Cause.UNKNOWN: 0,
    }
    assert (found.useful_steps, found.gpu_busy, found.communication) == (17, 0.5, pytest.approx(0.25))

    monkeypatch.setattr("runtime.telemetry.journal.COMPACT_BYTES", 1)
    attempt("1.0.cc", 3600 - 1, 18, 0, None)
    assert isinstance(next(read(tmp_path / "goodput.jsonl")), Carried)
    again = made([job(end_s=3600, gpus=1)], Run("r", tuple(history(tmp_path / "goodput.jsonl")))).total
    assert again.useful_steps == 17
    assert again.causes[Cause.USEFUL] == found.causes[Cause.USEFUL]


def test_a_week_begins_on_monday_and_time_is_cut_there() -> None:
    monday = 4 * 24 * HOUR  # 5 January 1970
    lines = (Started(at_s=monday - HOUR, attempt="1.0", world=8), stepped(monday + HOUR, 1, 100, 2 * HOUR))
    found = made([job("1", monday - HOUR, monday + HOUR)], Run("r", lines))
    assert [(each.week, each.gpu_hours, each.useful_steps) for each in found.weeks] == [
        ("1970-W01", pytest.approx(8), pytest.approx(50)),
        ("1970-W02", pytest.approx(8), pytest.approx(50)),
    ]


def test_only_the_period_is_counted() -> None:
    found = report(Accounting(jobs=(job(),)), (), Prices(gpu_hour=1), 100 * HOUR, 2 * HOUR, 5 * HOUR)
    assert (found.total.gpu_hours, found.total.cost) == (24, 24)
    assert report(Accounting(jobs=(job(),)), (), Prices(), 100 * HOUR, 50 * HOUR, None).total.jobs == 0
