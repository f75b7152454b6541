"""What stands before a text is taken off and read, whoever put it there; nothing in a line raises."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.diagnose.lines import COLOUR, head, node_of, whose

AT = datetime(2026, 11, 30, 16, 35, 2, 123000, UTC)
WHOLE = AT.replace(microsecond=0)
MARCH = datetime(2026, 3, 11, 16, 35, 2, 123000, UTC)


@pytest.mark.parametrize(
    ("raw", "text", "time", "rank", "node"),
    [
        ("[default3]:hello there", "hello there", None, 3, None),
        ("[rank12]: Traceback", "Traceback", None, 12, None),
        ("c000002: [rank8]: ValueError: no", "ValueError: no", None, 8, "c000002"),
        ("10.0.0.3: ValueError: no", "ValueError: no", None, None, "10.0.0.3"),
        ("[rank3]:[W1130 16:35:02.123000 99 socket.cpp:12] [c10d] text", "[c10d] text", AT, 3, None),
        ("[1,7]<stderr>:boom", "boom", None, 7, None),
        (" 11: srun says", "srun says", None, 11, None),
        ("2026-11-30 16:35:02,123 INFO it works", "INFO it works", AT, None, None),
        ("[2026-11-30 16:35:02,123] [INFO] deep", "[INFO] deep", AT, None, None),
        ("2026-11-30T17:35:02.123+01:00 zone", "zone", AT, None, None),
        ("[default0]:2026-11-30 16:35:02,123 both", "both", AT, 0, None),
        ("2026-11-30 16:35:02,123 [default1]:either", "either", AT, 1, None),
        ("Nov 30 16:35:02 gpu-1 kernel: NVRM: Xid", "kernel: NVRM: Xid", WHOLE, None, "gpu-1"),
        ("[Mon Nov 30 16:35:02 2026] mlx5_core", "mlx5_core", WHOLE, None, None),
        ("[pod/trainer-3/pytorch] 16 GPUs", "16 GPUs", None, None, "trainer-3"),
        ("[rank3]:[W311 16:35:02.123000456 socket.cpp:697] [c10d] text", "[c10d] text", MARCH, 3, None),
        ("[gpu-3:12]: hello", "hello", None, 12, "gpu-3"),
        ("(head, rank=4, pid=5752) hello", "hello", None, 4, "head"),
        ("(WorkerDict pid=71876, ip=10.8.0.24) ValueError: x", "ValueError: x", None, None, "10.8.0.24"),
        ("worker-2: AssertionError", "AssertionError", None, None, "worker-2"),
        ("slurmstepd-gpu-1: error: *** x", "slurmstepd: error: *** x", None, None, "gpu-1"),
        ("0: slurmstepd-n1: error: no", "slurmstepd: error: no", None, None, "n1"),
        ("4: slurmstepd: error: no", "slurmstepd: error: no", None, None, None),
        ("trainer-0  | ValueError: x", "ValueError: x", None, None, "trainer-0"),
        ("[socket.cpp:697]: text", "[socket.cpp:697]: text", None, None, None),
        ("4711  | a row of a table", "4711  | a row of a table", None, None, None),
        ("eth0: NIC Link is Down", "eth0: NIC Link is Down", None, None, None),
        ("2026-11-30T16:35:02.123+00:00 gpu-1 kernel: NVRM: Xid", "kernel: NVRM: Xid", AT, None, "gpu-1"),
        ("2026-11-30T16:35:02.123+00:00 ERROR main: no", "ERROR main: no", AT, None, None),
        ("12:30:01 is no rank", "12:30:01 is no rank", None, None, None),
        ("progress 1%\rprogress 2%\rfailed", "failed", None, None, None),
        ("2026-13-45 99:99:99,1 no such day", "no such day", None, None, None),
    ],
)
def test_a_prefix_is_taken_off_and_read(
    raw: str, text: str, time: datetime | None, rank: int | None, node: str | None
) -> None:
    assert head(raw + "\n", 2026) == (text, time, rank, node)


def test_a_structured_line_says_whose_it_is() -> None:
    found = head('{"time": "2026-11-30T16:35:02.123Z", "host": "gpu-1", "rank": 3, "event": "run.failed"}', 2020)
    assert (found.time, found.rank, found.node) == (AT, 3, "gpu-1")
    assert head('{"rank": true, "host": 5, "time": "soon"}', 2020)[1:] == (None, None, None)
    assert head('{"rank": 1', 2020).rank is None


def test_engines_wrap_a_line_and_it_is_read_as_it_was() -> None:
    docker = head('{"log": "[rank3]: ValueError: x\\n", "stream": "stderr", "time": "2026-11-30T16:35:02Z"}', 2026)
    assert (docker.text, docker.rank) == ("ValueError: x", 3)
    assert head('{"MESSAGE": "kernel: NVRM: Xid", "_HOSTNAME": "gpu-1"}', 2026)[::3] == ("kernel: NVRM: Xid", "gpu-1")


def test_nobody_said_the_words_of_a_record_of_data() -> None:
    assert "memory" not in head('{"text": "it says CUDA out of memory", "id": 7}', 2026).text
    assert "memory" not in head('[pod/trainer-3/pytorch] {"text": "it says CUDA out of memory"}', 2026).text
    assert "NaN" in head('{"step": 12, "loss": NaN}', 2026).text
    assert "memory" in head('{"level": "error", "msg": "CUDA out of memory"}', 2026).text


def test_brackets_without_an_end_do_not_raise() -> None:
    assert head('{"a":' + "[" * 3900, 2026).rank is None


@pytest.mark.parametrize(
    ("path", "rank", "node"),
    [
        ("rank_3.log", 3, None),
        ("logs/rank-12/stderr.log", 12, None),
        ("run/attempt_0/5/stderr.log", 5, None),
        ("slurm-1234-7.out", 7, None),
        ("slurm-1234.out", None, None),
        ("dmesg-gpu-3.txt", None, "gpu-3"),
        ("nodes/gpu-3.kern.log", None, "gpu-3"),
        ("training.log", None, None),
        ("frank-3.log", None, None),
    ],
)
def test_a_files_name_says_whose_it_is(path: str, rank: int | None, node: str | None) -> None:
    assert whose(path) == (rank, node)


def test_libraries_name_their_node() -> None:
    assert node_of("gpu-1:2211:2310 [3] NCCL WARN Call to connect failed") == "gpu-1"
    assert node_of("gpu-1:2211:2310 is no line of it") is None
    assert node_of("[gpu-1:108757:0:108757] ib_mlx5_log.c:136  Transport retry count exceeded") == "gpu-1"
    assert node_of("[gpu-1:12345] *** Process received signal ***") == "gpu-1"


@pytest.mark.parametrize("line", ["[rank{}]: text", "[1,{}]<stdout>:text", "{}: text", "(gpu-1, rank {}): text"])
def test_a_number_that_no_rank_has_is_text(line: str) -> None:
    raw = line.format("9" * 5000)
    assert head(raw, 2026).rank is None
    assert head(line.format(7), 2026).rank == 7


@given(st.text(max_size=300), st.integers(min_value=1970, max_value=2100))
def test_no_line_raises(raw: str, year: int) -> None:
    assert head(raw, year).text in raw or raw.startswith("{")


@given(st.binary(max_size=300))
def test_no_colour_is_left(raw: bytes) -> None:
    assert b"red" in COLOUR.sub(b"", b"\x1b[1;31mred\x1b[0m")
    assert len(COLOUR.sub(b"", raw)) <= len(raw)
