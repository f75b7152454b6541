"""Goodput outlives restarts, counts each step of the history once, and says honestly what was lost."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.place import Place
from runtime.telemetry.goodput import LINE, Back, Beat, Carried, Ledger, Started, Stepped
from runtime.telemetry.journal import COMPACT_BYTES, Journal, history, read, summed
from runtime.telemetry.record import Event, Step


def folded(*entries: Started | Stepped | Back | Beat) -> Ledger:
    ledger = Ledger()
    for each in entries:
        ledger.take(each)
    return ledger


def stepped(at_s: float, first: int, last: int, seconds: float, useful: int | None = None) -> Stepped:
    return Stepped(
        at_s=at_s, first=first, last=last, seconds=seconds, useful=last - first + 1 if useful is None else useful
    )


def test_what_a_crash_undid_is_lost_and_what_was_done_again_counts_once() -> None:
    ledger = folded(
        Started(at_s=0, attempt="a", world=4),
        stepped(100, 1, 100, 80),
        Started(at_s=150, attempt="b", world=4),  # 50 s of nothing
        stepped(200, 81, 120, 40),  # resumed from the checkpoint after step 80
        Beat(at_s=210),
    )
    sum_ = ledger.goodput(210, cost_per_rank_hour=3600)
    assert (sum_.useful_steps, sum_.lost_steps, sum_.starts) == (120, 20, 2)
    assert sum_.useful_s == pytest.approx(64 + 40)
    assert sum_.lost_s == pytest.approx(16)
    assert (sum_.all_s, sum_.paused_s) == (210, 50)
    assert sum_.ratio == pytest.approx(104 / 210)
    assert sum_.cost == pytest.approx(4 * 210)
    assert sum_.cost_per_useful_step == pytest.approx(7)
    assert ledger.goodput(210, 3600, pause_costs=False).cost == pytest.approx(4 * 160)


def test_a_roll_back_and_skipped_updates_are_lost() -> None:
    ledger = folded(
        Started(at_s=0, attempt="a", world=1),
        stepped(10, 1, 10, 10),
        Back(at_s=11, step=6),
        stepped(15, 7, 10, 4, useful=3),
    )
    sum_ = ledger.goodput(15)
    assert (sum_.useful_steps, sum_.lost_steps) == (9, 5)
    assert sum_.useful_s == pytest.approx(6 + 3)
    assert sum_.lost_s == pytest.approx(4 + 1)


def test_steps_that_were_resumed_from_and_not_written_down_count_without_time() -> None:
    sum_ = folded(
        Started(at_s=0, attempt="a", world=1),
        stepped(10, 1, 10, 10),
        Started(at_s=20, attempt="b", world=1),
        stepped(30, 16, 20, 5),  # 11 to 15 were done, saved and lost with the journal's last line
    ).goodput(30)
    assert (sum_.useful_steps, sum_.useful_s, sum_.lost_steps) == (20, 15, 0)


def test_a_run_of_which_nothing_is_known_is_worth_nothing_and_does_not_divide_by_zero() -> None:
    sum_ = Ledger().goodput(100, 1.0)
    assert (sum_.ratio, sum_.cost_per_useful_step, sum_.all_s) == (0, 0, 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[bool, int, float]], float]:
    """Runs of steps: whether a restart comes before it, where it goes on, the seconds of its steps."""
    runs, number = [], 1
    for _ in range(draw(st.integers(1, 8))):
        number = draw(st.integers(1, number))
        count = draw(st.integers(1, 20))
        runs.append((draw(st.booleans()), number, count))
        number += count
    return runs, draw(st.floats(0.01, 10))


@given(histories(), st.integers(1, 7))
def test_every_step_done_is_either_useful_once_or_lost(
    history: tuple[list[tuple[bool, int, float]], float], piece: int
) -> None:
    """Against counting one by one; however the steps are put together into entries."""
    runs, each_s = history
    ledger, now, done, last = Ledger(), 0.0, 0, {}
    ledger.take(Started(at_s=0, attempt="0", world=2))
    for restarts, first, count in runs:
        if restarts:
            now += 5
            ledger.take(Started(at_s=now, attempt="x", world=2))
        last = {number: True for number in last if number < first}
        for at in range(first, first + int(count), piece):
            end = min(at + piece, first + int(count)) - 1
            now += (end - at + 1) * each_s
            ledger.take(stepped(now, at, end, (end - at + 1) * each_s))
            done += end - at + 1
            last.update(dict.fromkeys(range(at, end + 1), True))
    sum_ = ledger.goodput(now)
    assert sum_.useful_steps == len(last)
    assert sum_.useful_steps + sum_.lost_steps == done
    assert sum_.useful_s + sum_.lost_s == pytest.approx(done * each_s)
    assert 0 <= sum_.ratio <= 1 + 1e-9
    carried = Ledger()
    carried.take(LINE.validate_json(ledger.carried().model_dump_json()))
    assert carried.goodput(now, 1.0) == ledger.goodput(now, 1.0)


def step(number: int, at_s: float, seconds: float = 1.0) -> Step:
    return Step(number, int((at_s - seconds) * 1e9), int(at_s * 1e9), {})


def test_a_journal_goes_on_after_a_restart_and_passes_over_what_a_crash_tore(tmp_path: Path, place: Place) -> None:
    path = tmp_path / "goodput.jsonl"
    first = Journal(path, place, clock=lambda: 100.0)
    first.take([step(number, 100.0 + number) for number in range(1, 6)])
    first.take([Event(int(105.0e9), "checkpoint.committed", "info", 5)])
    first.take([step(6, 106.0)])  # never written: the process dies here
    with path.open("ab") as file:
        file.write(b'{"kind":"stepped","at_s":1')
    second = Journal(path, place, clock=lambda: 120.0)
    second.take([step(6, 121.0), step(7, 122.0)])
    second.close()
    sum_ = summed(path)
    assert (sum_.useful_steps, sum_.lost_steps, sum_.starts) == (7, 0, 2)
    assert sum_.paused_s == pytest.approx(15)
    for line in path.read_bytes().splitlines()[-3:]:
        json.loads(line)  # the torn line did not spoil the next


def test_a_restore_is_heard_of_by_its_event(tmp_path: Path, place: Place) -> None:
    journal = Journal(tmp_path / "j", place, clock=lambda: 100.0)
    journal.take([step(number, 100.0 + number) for number in range(1, 6)])
    journal.take([Event(int(106e9), "checkpoint.restored", "info", 2)])
    assert journal.ledger.goodput(106).useful_steps == 2
    assert journal.ledger.goodput(106).lost_steps == 3


def test_a_journal_that_grew_is_summed_up_and_nothing_is_forgotten(tmp_path: Path, place: Place) -> None:
    path = tmp_path / "j"
    journal = Journal(path, place, clock=lambda: 0.0)
    for number in range(1, 400):
        journal.take([step(number, float(number))])
        journal.take([Event(number * 10**9, "checkpoint.saved", "info", number)])
    journal.close()
    before = summed(path)
    padding = Beat(at_s=399).model_dump_json().encode() + b"\n"
    with path.open("ab") as file:
        file.write(padding * (COMPACT_BYTES // len(padding) + 1))
    Journal(path, place, clock=lambda: 399.0).close()
    after = summed(path)
    assert path.stat().st_size < COMPACT_BYTES / 10
    assert (after.useful_steps, after.lost_steps, after.starts) == (before.useful_steps, 0, 2)
    assert after.useful_s == pytest.approx(before.useful_s)
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "j.000001"]
    lines = [line for line in history(path) if not isinstance(line, Beat)]
    assert not any(isinstance(line, Carried) for line in lines)  # every start and step is still there, one by one
    assert sum(line.useful for line in lines if isinstance(line, Stepped)) == before.useful_steps
    assert folded(*lines).starts == 2
    (tmp_path / "j.000001").unlink()
    assert any(isinstance(line, Carried) for line in history(path))
    assert folded(*history(path)).goodput(399).useful_steps == before.useful_steps


def test_the_journal_says_what_the_phases_took_and_how_busy_gpus_were(tmp_path: Path, place: Place) -> None:
    busy: float | None = None
    clock = iter(range(0, 1000, 20))
    journal = Journal(tmp_path / "j", place, clock=lambda: float(next(clock)), gpu_busy=lambda: busy)
    journal.take([replace(step(1, 1.0), parts={"data": 10**8, "of my own": 5}), step(2, 2.0)])
    busy = 0.75
    journal.take([replace(step(3, 3.0), parts={"data": 2 * 10**8, "communication": 10**8})])
    journal.close()
    lines = list(read(tmp_path / "j"))
    parts = [line.parts for line in lines if isinstance(line, Stepped)]
    assert parts == [{"data": pytest.approx(0.1)}, {"data": pytest.approx(0.2), "communication": pytest.approx(0.1)}]
    assert [line.gpu_busy for line in lines if isinstance(line, Beat)] == [None, 0.75, None]


def test_a_full_disk_loses_no_steps_once_there_is_room_again(tmp_path: Path) -> None:
    """In a process of its own with a limit on the size of files, which a full disk looks like to who writes."""
    program = """
import json, resource, signal, sys
from pathlib import Path
from runtime.place import Place
from runtime.telemetry.journal import Journal, summed
from runtime.telemetry.record import Event, Step
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
journal = Journal(path, Place(), clock=lambda: 0.0)
journal.take([])
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, resource.RLIM_INFINITY))
for number in range(1, 5):
    try:
        done = Step(number, (number - 1) * 10**9, number * 10**9, {})
        journal.take([done, Event(0, "checkpoint.committed", "info", 1)])
        raise SystemExit("no error was told")
    except OSError:
        pass
assert summed(path).useful_steps == 0 and path.read_bytes().endswith(b"\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.take([Step(5, 4 * 10**9, 5 * 10**9, {})])
journal.close()
print(summed(path).useful_steps)
"""
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "j")],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.stdout == "5\n", told.stderr


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_a_journal_with_anything_in_it_is_read_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("j") / "j"
    path.write_bytes(raw + b'\n{"kind":"started","at_s":1,"attempt":"a","world":1}\n{"kind":"beat","at_s":1e400}\n')
    assert [each.kind for each in read(path)][-1:] == ["started"]
