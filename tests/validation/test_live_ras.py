"""NCCL's RAS is asked as its client asks it, by an emulated server: no GPU is here. The JSON has the shape that NCCL's
user guide shows, and of one version the fault that it has.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_snapshots import diagnosed, job

from validation.diagnose.live.ras import RasError, parse
from validation.diagnose.live.ras_client import address, ask


def communicator(counts: dict[int, int], missing: tuple[int, ...] = (), errors: dict[int, int] | None = None) -> str:
    """What RAS answers of a communicator of these ranks, which launched so many AllReduce."""

    def one(rank: int, **more: Any) -> dict[str, Any]:
        return {"rank": rank, "host": "10.0.0.7", "pid": 1000 + rank, "cuda_dev": rank, "nvml_dev": rank, **more}

    told = {
        "nccl_version": "2.28.9",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xa1349768e9517ed7",
                "size": len(counts) + len(missing),
                "ranks_count": len(counts),
                "missing_ranks_count": len(missing),
                "ranks": [
                    one(
                        rank,
                        status={"init_state": 0, "async_error": (errors or {}).get(rank, 0), "abort_flag": False},
                        collective_counts={"Broadcast": 1, "AllReduce": count},
                    )
                    for rank, count in counts.items()
                ],
                "missing_ranks": [
                    one(rank, status={"unresponsive": True, "considered_dead": rank % 2 == 0}) for rank in missing
                ],
            }
        ],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }
    return json.dumps(told, indent=2)


@contextmanager
def server(answer: str, hello: str = "SERVER PROTOCOL 2", known: bool = True) -> Iterator[tuple[str, int]]:
    """Emulates RAS for one client: the handshake, a line for each request, then the status until it closes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listening.accept()
        with client, client.makefile("rw") as lines:
            for line in lines:
                request = line.strip()
                if request.startswith("CLIENT PROTOCOL"):
                    lines.write(f"{hello}\n")
                elif request.startswith(("TIMEOUT", "SET FORMAT")):
                    lines.write("OK\n" if known or request.startswith("TIMEOUT") else "ERROR: Unknown command\n")
                else:
                    assert request == "VERBOSE STATUS"
                    lines.write(answer)
                    lines.flush()
                    return
                lines.flush()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[:2]
    finally:
        listening.close()


def test_the_rank_with_the_lowest_count_is_named() -> None:
    with server(communicator({rank: 41 if rank == 3 else 42 for rank in range(8)})) as where:
        ras = ask(where)
    found = diagnosed([job()[0].model_copy(update={"ras": ras})])
    assert (found.root_cause.kind, found.root_cause.rank) == ("collective.desync", 3)
    assert "rank 3 has launched 41 AllReduce, 7 ranks 42" in found.root_cause.evidence[0].text


@pytest.mark.parametrize("missing", [2, 5])
def test_a_rank_that_does_not_answer_is_named(missing: int) -> None:
    text = communicator({rank: 42 for rank in range(8) if rank != missing}, missing=(missing,))
    with server(text) as where:
        ras = ask(where)
    assert ras.communicators[0].ranks[-1].dead == (missing == 2)
    cause = diagnosed([job()[0].model_copy(update={"ras": ras})]).root_cause
    assert (cause.kind, cause.rank) == ("peer.lost", missing)


def test_an_asynchronous_error_is_told_and_one_in_progress_is_none() -> None:
    ras = parse(communicator(dict.fromkeys(range(8), 42), errors={4: 2, 5: 7}))
    cause = diagnosed([job()[0].model_copy(update={"ras": ras})]).root_cause
    assert (cause.kind, cause.rank) == ("collective.aborted", 4)


def test_equal_counts_accuse_nobody_and_neither_do_counts_of_a_job_that_goes_on() -> None:
    equal = parse(communicator(dict.fromkeys(range(8), 42)))
    assert diagnosed([job()[0].model_copy(update={"ras": equal})]).root_cause.rank is None
    behind = parse(communicator({rank: 41 if rank == 3 else 42 for rank in range(8)}))
    rising = job({number: {"step": 42, "step_before": 40} for number in range(8)})
    assert diagnosed([rising[0].model_copy(update={"ras": behind})]).root_cause.kind == "progress.running"


def test_a_rank_of_a_smaller_communicator_is_found_by_its_process() -> None:
    told = json.loads(communicator({0: 42, 1: 41}))
    for each, pid in zip(told["communicators"][0]["ranks"], (1002, 1006), strict=True):
        each["pid"] = pid
    cause = diagnosed([job()[0].model_copy(update={"ras": parse(json.dumps(told))})]).root_cause
    assert (cause.kind, cause.rank) == ("collective.desync", 6)


def test_the_comma_that_a_version_leaves_out_is_put_in() -> None:
    text = communicator({0: 4}, missing=(1,))
    broken = text.replace('"nvml_dev": 1,\n', '"nvml_dev": 1\n')
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(broken)
    assert parse(broken) == parse(text)


def test_what_is_no_ras_or_an_older_one_is_said() -> None:
    with server("", hello="HTTP/1.1 400 Bad Request") as where, pytest.raises(RasError, match="is not NCCL's RAS"):
        ask(where)
    with server("", known=False) as where, pytest.raises(RasError, match="has no JSON"):
        ask(where)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(RasError, match="NCCL_RAS_ENABLE=0"):
            ask(bound.getsockname())


def test_one_that_says_nothing_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RasError, match=r"in time|timed out"):
        ask(silent.getsockname()[:2], limit_s=0.2)


def test_only_an_address_of_this_machine_is_asked() -> None:
    assert address({"NCCL_RAS_ADDR": "localhost:5000"}) == ("localhost", 5000)
    assert address({"NCCL_RAS_ADDR": "10.1.2.3:22"}) == address({}) == ("127.0.0.1", 28028)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["communicators", "ranks", "rank", "pid", "status", "collective_counts", "size", "host"]), inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(_json)
def test_whatever_it_answers_is_understood_or_refused(answer: object) -> None:
    try:
        told = parse(json.dumps(answer)).nccl
    except RasError as wrong:
        told = str(wrong)
    assert len(told) < 400
