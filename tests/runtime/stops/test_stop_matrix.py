"""Every signal in every phase of a step, for one rank and for all: real processes, signals and collectives."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.exits import Exit
from runtime.stops.signals import STOPPING

HERE = Path(__file__).parent
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator["subprocess.Popen[str]"]:
    """A process that has imported torch and forks each job's ranks."""
    with subprocess.Popen(
        [sys.executable, HERE / "server.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE.parents[2]), "GLOO_SOCKET_IFNAME": "lo"},
    ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def run(server: "subprocess.Popen[str]", tmp_path_factory: pytest.TempPathFactory) -> Run:
    def run(phase: str, signals: list[tuple[int, int]], **more: Any) -> dict[str, Any]:
        tmp_path = tmp_path_factory.mktemp("job")
        case = {"phase": phase, "signals": signals, "folder": str(tmp_path), **more}
        server.stdin.write(json.dumps(case) + "\n")  # type: ignore[union-attr]
        server.stdin.flush()  # type: ignore[union-attr]
        answer: dict[str, Any] = json.loads(server.stdout.readline())  # type: ignore[union-attr]
        answer["logs"] = "\n".join(each.read_text() for each in sorted(tmp_path.glob("log.*")))
        answer["events"] = [
            json.loads(line) for each in sorted(tmp_path.glob("events.*")) for line in each.read_text().splitlines()
        ]
        return answer

    return run


@pytest.fixture(scope="module")
def weights(run: Run) -> dict[int, str]:
    """The weight after each step of a run that nothing interrupts, to the last bit."""
    found = run("", [])
    assert found["codes"] == [Exit.DONE] * 2, found["logs"]
    return {each["step"]: each["weight"] for each in found["events"] if each["event"] == "stepped"}


def check(found: dict[str, Any], weights: dict[int, str]) -> None:
    """All ranks ended with the code of a stop, its state is right, and so is what comes of resuming from it."""
    assert found["codes"] == [Exit.RESUMABLE_STOP] * 2, found["logs"]
    agreed = {each["step"] for each in found["events"] if each["event"] == "stop.agreed"}
    assert agreed == {found["stopped"]["step"]}
    assert found["stopped"]["weight"] == weights[found["stopped"]["step"]]
    assert found["again"] == [Exit.DONE] * 2, found["logs"]
    assert found["final"] == {"step": 8, "weight": weights[8]}


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("phase", ["data", "forward", "backward", "collective", "save"])
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)], ids=["rank 0", "rank 1", "both"])
def test_a_signal_in_any_phase_stops_every_rank_at_one_step_with_a_state_to_resume_from(
    run: Run, weights: dict[int, str], phase: str, number: signal.Signals, ranks: tuple[int, ...]
) -> None:
    found = run(phase, [(rank, number) for rank in ranks])
    check(found, weights)
    # While the signal came, the older state was whole: a stop in the middle of a save does not lose it.
    assert found["older"] == {"step": 2, "weight": weights[2]}
    assert 4 <= found["stopped"]["step"] <= 6


def test_signals_that_come_again_or_differ_between_ranks_are_one_stop(run: Run, weights: dict[int, str]) -> None:
    check(run("collective", [(0, signal.SIGTERM)] * 3 + [(1, signal.SIGUSR1), (0, signal.SIGINT)]), weights)


def test_a_signal_before_the_ranks_have_met_is_a_stop_at_the_first_boundary(run: Run, weights: dict[int, str]) -> None:
    found = run("start", [(1, signal.SIGTERM)])
    check(found, weights)
    assert found["stopped"]["step"] == 1


def test_a_signal_on_the_way_out_changes_nothing(run: Run, weights: dict[int, str]) -> None:
    found = run("finish", [(0, signal.SIGTERM), (1, signal.SIGTERM)])
    assert found["codes"] == [Exit.DONE] * 2, found["logs"]
    assert found["final"] == {"step": 8, "weight": weights[8]}


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_data_loader_workers_outlive_the_signals_that_their_rank_gets_too(
    run: Run, weights: dict[int, str], start: str
) -> None:
    found = run("workers", [(rank, number) for rank in (0, 1) for number in STOPPING], workers=start)
    check(found, weights)
    fed = [each for each in found["events"] if each["event"] == "fed"]
    assert any(each["step"] > 4 for each in fed)
    assert "killed by signal" not in found["logs"]


def test_a_grace_shorter_than_a_save_leaves_the_last_good_state_and_says_so(run: Run, weights: dict[int, str]) -> None:
    found = run("forward", [(1, signal.SIGTERM)], config={"save_s": 60.0, "grace_s": 20.0})
    assert found["codes"] == [Exit.RESUMABLE_STOP] * 2, found["logs"]
    assert found["stopped"] in ({"step": 2, "weight": weights[2]}, {"step": 4, "weight": weights[4]})
    assert {each["save"] for each in found["events"] if each["event"] == "stop.agreed"} == {False}
    assert any(each["event"] == "stop.grace_too_short" for each in found["events"])
    assert found["final"] == {"step": 8, "weight": weights[8]}
