"""The node suite as it runs: whatever one measurement does, the others are taken and the stream is whole."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from suite_shapes import SHAPES, fits

from validation import suite
from validation.node import host, session
from validation.node.host import CommandFailed, Host, set_deadline
from validation.node.measure import MEASURES, Unmeasurable, measure
from validation.node.session import in_time, outcome, read_request
from validation.node.stream import VALUE_LIMIT, Stream, read

EXPECTATIONS = {
    "network.interfaces": {"lo": {"address": "127.0.0.1/8", "mtu": 1500, "plane": "management"}},
    "network.peers": {"management": {"itself": "127.0.0.1"}},
    "network.bonds": {},
    "ports.open": ["tcp/22"],
    "ports.jobs": "50000-51000",
    "pins.packages": {"bash": "5.2", "no-such-package": "1"},
    "sysctl.values": {"vm.swappiness": "10", "no.such.setting": "1"},
}


def run(request: dict[str, Any], **environment: str) -> tuple[Stream, "subprocess.CompletedProcess[bytes]"]:
    done = subprocess.run(
        [sys.executable, "-ISB", str(suite.build())],
        input=json.dumps(request).encode(),
        capture_output=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    return read(done.stdout), done


@pytest.fixture(scope="module")
def everything() -> Stream:
    told, done = run({"node": "gpu-0", "expectations": EXPECTATIONS})
    assert done.returncode == 0, done.stderr.decode()
    return told


def test_the_real_file_takes_every_measurement_and_says_that_it_did(everything: Stream) -> None:
    assert everything.fault is None
    assert everything.header
    assert everything.header["node"] == "gpu-0"
    assert sorted(each["measure"] for each in everything.measurements) == sorted(SHAPES)


def test_every_value_has_the_shape_that_controls_are_written_against(everything: Stream) -> None:
    measured = [each for each in everything.measurements if each["outcome"] == "measured"]
    assert len(measured) > 20
    misfits = {each["measure"]: each["value"] for each in measured if not fits(each["value"], SHAPES[each["measure"]])}
    assert not misfits


def test_every_measure_has_a_shape_and_every_shape_a_measure() -> None:
    assert SHAPES.keys() == MEASURES.keys()


def test_what_has_no_value_has_a_reason(everything: Stream) -> None:
    for each in everything.measurements:
        assert ("value" in each) == (each["outcome"] == "measured")
        assert each["outcome"] == "measured" or each["reason"]


def test_what_was_asked_for_by_name_is_answered_by_name(everything: Stream) -> None:
    values = {each["measure"]: each.get("value") for each in everything.measurements}
    assert values["pins.packages"].keys() == {"bash", "no-such-package"}
    assert values["pins.packages"]["no-such-package"] is None
    assert values["sysctl.values"]["no.such.setting"] is None


def test_a_node_without_gpus_counts_none_of_their_errors(everything: Stream) -> None:
    gpu = [each for each in everything.measurements if each["measure"].startswith("gpu.")]
    if any(each["outcome"] == "measured" for each in gpu):
        pytest.skip("this machine has an NVML library")
    assert {each["outcome"] for each in gpu} == {"unmeasurable"}


def test_the_suite_is_cheap(everything: Stream) -> None:
    """Issue 3 allows 2 s of CPU a node; measured on a machine that does other things, so only roughly held here."""
    before = os.times()
    run({"node": "gpu-0", "expectations": EXPECTATIONS})
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 4


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"[]",
        b"{}",
        b'{"node": 1}',
        b'{"node": "a", "options": []}',
        b'{"node": "a", "options": {"only": ["no.such"]}}',
    ],
)
def test_a_request_that_is_none_is_refused_before_anything_is_measured(request_: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_request(request_)


def test_a_request_for_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="asks for no measure"):
        read_request(b'{"node": "a", "options": {"only": []}}')


def test_a_refused_request_ends_with_2_and_tells_nothing() -> None:
    told, done = run({"node": "a", "options": {"only": ["no.such"]}})
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"no measure is called no.such" in done.stderr
    assert told.fault


def test_only_what_is_asked_for_is_taken() -> None:
    told, _ = run({"node": "a", "options": {"only": ["cpu.count", "kernel.version"]}})
    assert told.fault is None
    assert [each["measure"] for each in told.measurements] == ["cpu.count", "kernel.version"]


MISCHIEF = """
import os, sys, time
from validation.node import session
from validation.node.measure import MEASURES, Unmeasurable, measure
MEASURES.clear()
measure("bad.hangs", limit_s=0.5)(lambda: time.sleep(600))
measure("bad.raises")(lambda: 1 / 0)
measure("bad.exits")(lambda: sys.exit(3))
measure("bad.huge")(lambda: "x" * 200_000)
measure("bad.not_json")(lambda: {1, 2})
measure("bad.not_a_number")(lambda: float("nan"))
measure("bad.talks")(lambda: os.write(1, b'{"record":"closing"}\\n') and print("noise") or 1)
measure("bad.unknown")(lambda: (_ for _ in ()).throw(Unmeasurable("no such thing here")))
measure("good.fact")(lambda: 42)
session.main()
"""


def test_one_bad_measurement_spoils_no_other() -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MISCHIEF], input=b'{"node": "a"}', capture_output=True, timeout=60, check=False
    )
    told = read(done.stdout)
    assert told.fault is None, done.stderr.decode()
    found = {each["measure"]: (each["outcome"], each.get("reason", "")) for each in told.measurements}
    assert {name: state for name, (state, _) in found.items()} == {
        "bad.hangs": "error",
        "bad.raises": "error",
        "bad.exits": "error",
        "bad.huge": "error",
        "bad.not_json": "error",
        "bad.not_a_number": "error",
        "bad.talks": "measured",
        "bad.unknown": "unmeasurable",
        "good.fact": "measured",
    }
    assert "no answer within" in found["bad.hangs"][1]
    assert found["bad.raises"][1] == "ZeroDivisionError: division by zero"
    assert str(VALUE_LIMIT) in found["bad.huge"][1]
    assert time.monotonic() - started < 30, "what hangs must not hold the suite up"


def test_when_the_time_for_all_is_over_the_rest_is_told_as_failed() -> None:
    told, _ = run({"node": "a", "options": {"limit_s": 0}})
    assert told.fault is None
    assert len(told.measurements) == len(MEASURES)
    assert {each["outcome"] for each in told.measurements} == {"error"}


def test_one_fact_has_one_function() -> None:
    with pytest.raises(ValueError, match="measured twice"):
        measure("cpu.count")(lambda: 1)


def test_a_function_that_never_returns_is_left_behind() -> None:
    _, error = in_time(lambda: time.sleep(60), 0.2)
    assert isinstance(error, TimeoutError)
    assert outcome(None, error)["outcome"] == "error"
    assert outcome(None, Unmeasurable(""))["reason"]


def test_a_command_is_ended_with_all_that_it_started() -> None:
    set_deadline(0.5)
    with pytest.raises(TimeoutError, match="sleep 3217"):
        Host("a").run("sh", "-c", "sleep 3217 & sleep 3217")
    time.sleep(0.2)
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x003217" in _quietly(path)]
    assert not alive


def _quietly(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_command_that_floods_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "OUTPUT_LIMIT", 100_000)
    set_deadline(20)
    with pytest.raises(OverflowError):
        Host("a").run("yes")


def test_a_command_that_is_missing_is_not_a_command_that_fails() -> None:
    set_deadline(10)
    with pytest.raises(Unmeasurable, match="no-such-tool is not installed"):
        Host("a").run("no-such-tool", "--now")
    with pytest.raises(CommandFailed, match="ended with 3: alas"):
        Host("a").run("sh", "-c", "echo alas >&2; exit 3")


def test_arguments_are_never_read_by_a_shell(tmp_path: Path) -> None:
    set_deadline(10)
    assert Host("a").run("printf", "%s", f"$(touch {tmp_path}/x); `touch {tmp_path}/y`") == (
        f"$(touch {tmp_path}/x); `touch {tmp_path}/y`"
    )
    assert not list(tmp_path.iterdir())


def test_a_child_that_hangs_is_given_up_and_one_that_fails_says_why() -> None:
    set_deadline(0.5)
    with pytest.raises(TimeoutError):
        Host("a").in_child(lambda: time.sleep(60))
    set_deadline(10)
    with pytest.raises(OSError, match="FileNotFoundError"):
        Host("a").in_child(lambda: Path("/no/such/file").read_text())
    with pytest.raises(OSError, match="died"):
        Host("a").in_child(lambda: os._exit(9))
    assert Host("a").in_child(lambda: {"a": [1]}) == {"a": [1]}


def test_a_failure_is_remembered_like_an_answer() -> None:
    calls = []

    def fails(of: Host) -> None:
        calls.append(of)
        raise CommandFailed("alas")

    machine = Host("a")
    for _ in range(3):
        with pytest.raises(CommandFailed):
            machine.once(fails)
    assert len(calls) == 1


def test_pytest_reads_nothing_of_the_node() -> None:
    assert "--config-file=/dev/null" in session.PYTEST
    assert "no:cacheprovider" in session.PYTEST
