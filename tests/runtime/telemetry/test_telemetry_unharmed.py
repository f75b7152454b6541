"""Whatever telemetry meets, training goes on: no error, no wait, no thread that keeps the process, no secret told."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from real_receivers import free_port, until

from runtime.events import Tell
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
from runtime.telemetry.record import LEVELS

ROOT = Path(__file__).parents[3]


def config(**values: Any) -> TelemetryConfig:
    return TelemetryConfig.model_validate({"console": "off", "capture_logging": False, "hardware_every_s": 0, **values})


def trains(telemetry: Telemetry, steps: int = 20) -> None:
    for number in range(1, steps + 1):
        with telemetry.phase("data"), telemetry.phase("forward"):
            telemetry("something.happened", value=number)
        telemetry.step_done(number, samples=1, loss=0.5)


def lines(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    raw = (folder / "logs" / f"rank-{rank:05}.jsonl").read_text()
    return [json.loads(line, parse_constant=pytest.fail) for line in raw.split("\n")[:-1]]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_it_is_what_the_parts_of_the_runtime_tell(place: Place, tmp_path: Path) -> None:
    telemetry = Telemetry(config(folder=tmp_path), place)
    tell: Tell = telemetry
    tell("checkpoint.committed", step=5, seconds=1.5)
    tell("save.failed")
    tell("odd", level="loud")
    tell("replica.differs")
    tell("checkpoint.lease.lost")
    telemetry.close()
    committed, failed, odd, *worse = lines(tmp_path)
    assert [each["level"] for each in worse] == ["error", "warning"]
    assert (committed["step"], committed["seconds"], committed["level"]) == (5, 1.5, "info")
    assert (failed["level"], odd["level"]) == ("error", "info")
    assert {"time", "host", "rank", "pid", "attempt", "run"} <= set(committed)
    assert committed["time"].endswith("+00:00")


@pytest.mark.parametrize("what", ["refused", "silent", "unresolved"])
def test_receivers_that_are_down_cost_their_own_items_alone(
    what: str, silent_server: str, tmp_path: Path, place: Place
) -> None:
    url = {
        "refused": f"http://127.0.0.1:{free_port()}",
        "silent": silent_server,
        "unresolved": "http://nowhere.invalid:4317",
    }[what]
    telemetry = Telemetry(
        config(
            folder=tmp_path,
            traces={"endpoint": url, "share": 1, "timeout_s": 0.5},
            loki={"url": url, "timeout_s": 0.5},
            push={"url": url, "timeout_s": 0.5, "every_s": 0.1},
        ),
        place,
    )
    trains(telemetry)
    telemetry.close(limit_s=20)
    assert telemetry.dropped["traces"] == 20
    assert telemetry.dropped["loki"] >= 20
    assert telemetry.dropped["log"] == telemetry.dropped["digest"] == telemetry.dropped["goodput"] == 0
    assert [each["value"] for each in lines(tmp_path) if each["event"] == "something.happened"] == list(range(1, 21))


def test_the_loss_of_a_receiver_is_told_once_to_the_others(tmp_path: Path, place: Place) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    telemetry = Telemetry(config(folder=tmp_path, push={"url": url, "timeout_s": 0.5, "every_s": 0.01}), place)
    until(lambda: telemetry._then[0]._failures > 1)
    telemetry.close()
    (lost,) = [each for each in lines(tmp_path) if each["event"] == "telemetry.lost"]
    assert (lost["receiver"], lost["level"]) == ("push", "warning")


def test_a_port_that_is_taken_and_a_folder_that_cannot_be_made_do_not_stop_a_run(tmp_path: Path, place: Place) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        telemetry = Telemetry(
            config(folder=tmp_path / "file" / "x", scrape={"host": "127.0.0.1", "port": taken.getsockname()[1]}), place
        )
        trains(telemetry)
        telemetry.close(10)
    assert telemetry.dropped["log"] >= 20
    assert telemetry.dropped["digest"] == 0


def test_a_log_file_that_the_disk_will_not_have_is_whole_when_there_is_room_again(tmp_path: Path) -> None:
    """In a process of its own with a limit on the size of files, which a full disk looks like to who writes."""
    program = """
import resource, signal, sys
from pathlib import Path
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
telemetry = Telemetry(TelemetryConfig(folder=folder, console="off", hardware_every_s=0), Place())
telemetry("before", text="x" * 50)
assert telemetry.flush(30)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
lane = next(each for each in telemetry._lanes if each.name == "log")
for number in range(1, 200):
    telemetry("during", number=number)
    telemetry.step_done(number)
while not lane.dropped:
    lane.flush(0.1)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
lane.flush(60)
telemetry("after")
telemetry.close(30)
print(lane.dropped)
"""
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0, told.stderr
    found = lines(tmp_path)  # each line is JSON
    assert (found[0]["event"], found[-1]["event"]) == ("before", "after")
    told_during = [each["number"] for each in found if each["event"] == "during"]
    assert len(told_during) + int(told.stdout) >= 199  # what is missing was counted
    assert told_during == sorted(set(told_during))  # nothing twice, nothing out of order


def test_a_process_ends_though_a_receiver_hangs(tmp_path: Path) -> None:
    """The console is a pipe that nobody reads, and a sink never comes back: the process ends with its own code."""
    program = f"""
import sys, threading
sys.path[:0] = [{str(ROOT)!r}]
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
telemetry = Telemetry(TelemetryConfig(console="json", hardware_every_s=0), Place())
telemetry._hear(telemetry._lane("hung", lambda: threading.Event().wait()))
for number in range(3000):
    telemetry("much", text="x" * 1000)
    telemetry.step_done(number)
telemetry.close(limit_s=0.5)
sys.exit(7)
"""
    read, write = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-c", program], stderr=write)
        assert process.wait(60) == 7
    finally:
        os.close(read)
        os.close(write)


def test_a_forked_worker_tells_nothing_and_ends(tmp_path: Path, place: Place) -> None:
    """Whatever a thread held at that moment is held in the child for ever."""
    telemetry = Telemetry(config(folder=tmp_path), place)
    with telemetry._first[0]._nudge._cond:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            telemetry("from.the.child")
            telemetry.close()
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    telemetry("from.the.parent")
    telemetry.close()
    assert [each["event"] for each in lines(tmp_path)] == ["from.the.parent"]


class Nasty:
    """Fails however it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __float__ = detach = __str__


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.builds(Nasty) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), st.dictionaries(st.text(), JSON, max_size=5), JSON)
def test_anything_may_be_told_and_every_line_is_json(
    tmp_path_factory: pytest.TempPathFactory, name: str, fields: dict[str, Any], value: Any
) -> None:
    folder = tmp_path_factory.mktemp("x")
    telemetry = Telemetry(config(folder=folder), Place())
    telemetry(name, **fields)
    with telemetry.phase(name):
        pass
    telemetry.step_done(1, loss=value, grad_norm=value)
    telemetry.close()
    assert telemetry.dropped["log"] == telemetry.dropped["digest"] == 0
    (line,) = lines(folder)
    assert line["level"] in LEVELS


def test_an_exception_is_told_whole_with_its_cause_and_without_secrets(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "Xq7rT2mZ9kLw")
    telemetry = Telemetry(config(folder=tmp_path), place)
    try:
        try:
            raise ConnectionError("s3://me:hunter22@host is gone")
        except ConnectionError as cause:
            raise RuntimeError("could not save with Xq7rT2mZ9kLw") from cause
    except RuntimeError as error:
        telemetry("save.failed", error=error)
    telemetry.close()
    (line,) = lines(tmp_path)
    assert line["error"]["type"] == "RuntimeError"
    for part in ("ConnectionError", "The above exception was the direct cause", "raise RuntimeError", __file__):
        assert part in line["error"]["traceback"]
    assert "hunter22" not in json.dumps(line)
    assert "Xq7rT2mZ9kLw" not in json.dumps(line)


def test_what_libraries_log_is_told_too(tmp_path: Path, place: Place) -> None:
    telemetry = Telemetry(config(folder=tmp_path, capture_logging=True), place)
    logging.getLogger("some.library").warning("password=%s", "hunter22")
    logging.getLogger("some.library").info("not this")
    telemetry.close()
    logging.getLogger("some.library").warning("after the end")
    (line,) = lines(tmp_path)
    assert (line["event"], line["logger"], line["text"]) == ("log", "some.library", "password=***")


def test_a_tensor_is_kept_without_its_graph_and_read_elsewhere(place: Place, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(3, requires_grad=True)
    telemetry = Telemetry(config(folder=tmp_path), place)
    kept: list[Any] = []
    telemetry._steps[0].put = kept.append  # type: ignore[method-assign]
    with telemetry.phase("forward"):
        loss = (weight * 2).sum()
    telemetry.step_done(1, loss=loss)
    telemetry.close()
    assert kept[0].loss.grad_fn is None
    assert float(kept[0].loss) == 6


def test_a_log_is_turned_over_and_only_so_many_are_kept(tmp_path: Path, place: Place) -> None:
    telemetry = Telemetry(config(folder=tmp_path, log={"max_bytes": 4096, "keep": 2}), place)
    for number in range(60):
        telemetry("filler", number=number, text="x" * 100)
        assert telemetry.flush(30)
    telemetry.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [each.name for each in files] == ["rank-00000.jsonl", "rank-00000.jsonl.1"]
    assert all(each.stat().st_size <= 4096 for each in files)
    assert lines(tmp_path)[-1]["number"] == 59


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"runn": "x"}, "runn"),
        ({"run": "a b"}, "run"),
        ({"loki": {"url": "ftp://x"}}, "http:// or https://"),
        ({"traces": {"endpoint": "http://user:secret@host:4317"}}, "through the environment"),
        ({"traces": {"endpoint": "http://host:4317", "share": 1.5}}, "share"),
        ({"scrape": {"port": 70000}}, "port"),
    ],
)
def test_a_bad_configuration_is_refused_and_no_password_is_repeated(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TelemetryConfig.model_validate(bad)
    assert says in str(refused.value)


def test_closing_twice_and_telling_after_the_end_do_nothing(tmp_path: Path, place: Place) -> None:
    telemetry = Telemetry(config(folder=tmp_path), place)
    telemetry.close()
    telemetry.close()
    telemetry("late")
    telemetry.step_done(1)
    assert not (tmp_path / "logs").exists()


def test_what_was_told_before_an_uncaught_error_is_written(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from runtime.telemetry import Telemetry, TelemetryConfig
telemetry = Telemetry(TelemetryConfig(folder=Path(sys.argv[1]), console="off"))
telemetry("the.last.words")
raise MemoryError
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert [each["event"] for each in lines(tmp_path)] == ["the.last.words"]
