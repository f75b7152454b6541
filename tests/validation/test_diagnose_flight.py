"""Dumps of all ranks together name the odd one; nothing in a dump is executed."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validation.diagnose.flight import Entry, read, told
from validation.diagnose.sources import SourceError


def entry(
    number: int, op: str = "nccl:all_reduce", sizes: str = "[[4]]", state: str = "completed", **more: Any
) -> Entry:
    return Entry(
        **{"group": "0/default_pg", "number": number, "op": op, "sizes": sizes, "dtypes": "['Float']"}
        | {"state": state}
        | more
    )


def said(ranks: dict[int, list[Entry]]) -> list[str]:
    return [line.text.removeprefix("flight recorder: ") for line in told(ranks, "dumps")]


def test_a_rank_that_did_not_come_is_named() -> None:
    usual = [entry(number) for number in range(1, 5)]
    texts = said({0: [*usual, entry(5, state="started")], 1: [*usual, entry(5, state="started")], 2: usual})
    assert texts == ["rank 2 has not come to collective 5 (nccl:all_reduce) of group 0/default_pg, 2 of 3 ranks have"]


@pytest.mark.parametrize(("what", "odd"), [("op", "nccl:broadcast"), ("sizes", "[[8]]"), ("dtypes", "['Half']")])
def test_a_rank_that_came_with_another_collective_is_named(what: str, odd: str) -> None:
    (text,) = said({rank: [entry(1), entry(2, **({what: odd} if rank == 1 else {}))] for rank in range(3)})
    assert text.startswith(f"rank 1 came to collective 2 of group 0/default_pg with {what} {odd}, the others with")


def test_of_two_that_differ_neither_is_accused() -> None:
    texts = said({0: [entry(1, sizes="[[4]]")], 1: [entry(1, sizes="[[8]]")]})
    assert [text[:6] for text in texts] == ["rank 0", "rank 1"]
    assert all("as many others" in text for text in texts)


def test_all_there_and_none_done_is_nobodys_fault() -> None:
    (text,) = said({rank: [entry(1), entry(2, state="started")] for rank in range(4)})
    assert text.startswith("all 4 ranks have come to collective 2")


def test_what_a_ring_forgot_is_not_missed() -> None:
    assert said({0: [entry(number) for number in range(1, 9)], 1: [entry(number) for number in range(5, 9)]}) == []


def test_numbers_that_nobody_has_are_not_counted_through() -> None:
    far = {rank: [entry(1), entry(10**15)] for rank in range(3)}
    assert said(far) == []


def test_real_dumps_of_gloo_name_the_rank_that_slept() -> None:
    """Three ranks, five sums; before the sixth rank 2 slept until the others gave up (torch 2.15, gloo)."""
    ranks = dict(read(each) for each in (Path(__file__).parent / "recorded" / "flight_gloo").iterdir())
    assert said({rank: list(entries) for rank, entries in ranks.items()}) == [
        "rank 2 has not come to collective 6 (gloo:all_reduce) of group 0/default_pg, 2 of 3 ranks have"
    ]


DUMP = {
    "version": "2.10", "entries": [
        {"process_group": ("0", "default_pg"), "collective_seq_id": 7, "p2p_seq_id": 0, "is_p2p": False,
         "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "started"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12", 12),
        ("nccl_trace_gpu-7.example_4", 4),
        ("nccl_trace_rank_5.json", 5),
        ("a1-torch-rank-6", 6),
        ("run-7-rank-8.nccl2.json", 8),
    ],
)
def test_a_dump_is_read_by_its_name(tmp_path: Path, name: str, rank: int) -> None:
    raw = json.dumps(DUMP).encode() if name.endswith("json") else pickle.dumps(DUMP)
    (tmp_path / name).write_bytes(raw)
    found = read(tmp_path / name)
    assert found == (rank, (Entry("0/default_pg", 7, "nccl:all_reduce", "[[4]]", "['Float']", "started"),))


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_nothing_in_a_dump_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for at, evil in enumerate([Evil(), {"entries": [Evil()]}, {"entries": Evil()}]):
        path = tmp_path / f"nccl_trace_rank_{at}"
        path.write_bytes(pickle.dumps(evil))
        with pytest.raises(SourceError, match=r"names (posix|os)\.mkdir"):
            read(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"[1]", b"\x80\x04.", pickle.dumps({"entries": 5}), b"[" * 100_000, b'{"entries": [' * 50_000,
        pickle.dumps({"entries": [], "rank": 10**6000}), pickle.dumps({"entries": [{"input_sizes": 10**6000}]}),
        pickle.dumps({"entries": [], "rank": "9" * 6000}), pickle.dumps({"entries": [], "rank": -1}),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_refused_with_its_name(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(raw)
    with pytest.raises(SourceError, match="nccl_trace_rank_0"):
        read(path)


@given(st.binary(max_size=500))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_do_anything_but_be_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(raw)
    with pytest.raises(SourceError):
        read(path)
