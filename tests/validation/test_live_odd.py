"""Snapshots of all nodes together name the rank that the others wait for, and nobody where nobody is odd."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_snapshots import C10D, TORCH, WAITING, diagnosed, job, main, rank

from validation.diagnose.kinds import Confidence
from validation.diagnose.live.odd import told
from validation.diagnose.live.snapshot import Frame, Gpu, Link, Rank, Snapshot, Thread, Waits
from validation.diagnose.live.stand import Doing, stand

OWN = "/job/train.py:120 main"
LOADER = (f"{TORCH}/utils/data/dataloader.py:1180 _try_get_data", OWN)

HOLDER = Thread(name="t", interpreter=True, frames=(Frame(name="f", file="/a.py"),))

ODD: list[tuple[str, dict[str, Any], str]] = [
    ("stopped", {"state": "T", "wchan": "do_signal_stop"}, "program.stopped"),
    ("traced", {"state": "t", "traced_by": 99, "wchan": "ptrace_stop"}, "program.debugger"),
    ("pdb", {"threads": (main("/usr/lib/python3.11/pdb.py:360 user_line", OWN),)}, "program.debugger"),
    ("nfs", {"state": "D", "wchan": "rpc_wait_bit_killable", "threads": (main(OWN),)}, "storage.stale"),
    ("lustre", {"state": "D", "wchan": "x", "kernel_stack": ("schedule", "ptlrpc_set_wait")}, "storage.stale"),
    ("ceph", {"state": "D", "wchan": "ceph_con_workfn", "threads": ()}, "storage.stale"),
    ("fuse", {"state": "S", "wchan": "request_wait_answer", "threads": (main(OWN),)}, "storage.stale"),
    ("disk", {"state": "D", "wchan": "io_schedule", "threads": (main(OWN),)}, "storage.slow"),
    (
        "a worker in nfs",
        {"threads": (main(*LOADER),), "children": (Waits(pid=7, state="D", wchan="nfs_wait_client_init_complete"),)},
        "storage.stale",
    ),
    ("driver", {"state": "D", "wchan": "uvm_ioctl", "threads": (main(OWN),)}, "node.unhealthy"),
    ("loader", {"threads": (main(*LOADER),)}, "slow.data"),
    ("saving", {"threads": (main(f"{TORCH}/serialization.py:900 save", OWN),)}, "slow.checkpoint"),
    ("own saving", {"threads": (main("/job/io.py:9 f", "/job/t.py:7 Run.save_checkpoint", OWN),)}, "slow.checkpoint"),
    ("ending", {"threads": (main("/usr/lib/python3.11/threading.py:1560 _shutdown"),)}, "program.error"),
    ("importing", {"threads": (main("<frozen importlib._bootstrap>:241 _load", OWN),)}, "program.import"),
    ("compiling", {"threads": (main(f"{TORCH}/_dynamo/convert_frame.py:900 f", OWN),), "state": "R"}, "slow.rank"),
    ("fifo", {"wchan": "wait_for_partner", "threads": (main(OWN),)}, "program.blocked"),
    ("lock", {"threads": (main("/usr/lib/python3.11/threading.py:320 Condition.wait", OWN),)}, "program.lock"),
    ("interpreter", {"threads": (main(OWN), HOLDER)}, "program.interpreter_stuck"),
    ("loop", {"state": "R", "wchan": "", "cpu_s": 2.97, "moved": True, "threads": (main(OWN),)}, "program.loop"),
    ("asleep", {"wchan": "hrtimer_nanosleep", "threads": (main(OWN),)}, "collective.desync"),
    ("another", {"threads": (main(f"{C10D}:2700 broadcast", OWN),)}, "collective.mismatch"),
    ("another line", {"threads": (main(f"{C10D}:3010 all_reduce", OWN),)}, "collective.desync"),
]  # fmt: skip


@pytest.mark.parametrize(("odd", "kind"), [each[1:] for each in ODD], ids=[each[0] for each in ODD])
@pytest.mark.parametrize("number", [0, 5])
def test_the_rank_that_the_others_wait_for_is_named(odd: dict[str, Any], kind: str, number: int) -> None:
    cause = diagnosed(job({number: odd})).root_cause
    assert (cause.kind, cause.rank, cause.node) == (kind, number, "gpu-0")
    assert cause.confidence is not Confidence.UNKNOWN


@pytest.mark.parametrize("name", ["loader", "asleep", "another"])
def test_what_only_the_place_tells_is_never_certain(name: str) -> None:
    odd = next(each[1] for each in ODD if each[0] == name)
    assert diagnosed(job({3: odd})).root_cause.confidence is Confidence.LIKELY


RISES = Link(name="eth2", kind="ethernet", up=True, rises={"rx_crc_errors": 9})


def test_all_in_the_same_collective_is_nobodys_fault_and_only_possible() -> None:
    cause = diagnosed(job()).root_cause
    assert (cause.kind, cause.rank, cause.confidence) == ("network.rdma_path", None, Confidence.POSSIBLE)


@pytest.mark.parametrize("gone", [0, 5])
def test_a_rank_without_a_process_is_named_where_its_node_was_looked_at(gone: int) -> None:
    cause = diagnosed(job({gone: None})).root_cause  # type: ignore[dict-item]
    assert (cause.kind, cause.rank, cause.node) == ("peer.lost", gone, "gpu-0")


def test_ranks_on_nodes_that_were_not_looked_at_are_not_called_gone() -> None:
    first = job(world=16)[0].model_copy(update={"asked": 0})
    found = diagnosed([first])
    assert found.root_cause.kind == "unknown"
    assert found.read.missing_ranks == tuple(range(8, 16))


def test_a_node_without_ranks_has_lost_them_and_one_that_is_silent_is_named() -> None:
    first, second = job(world=16)
    empty = second.model_copy(update={"ranks": ()})
    assert diagnosed([first, empty]).root_cause.kind == "peer.lost"
    silent = Snapshot(node="gpu-1", time=second.time, answered=False, asked=2, missed=("no answer in 60 s",))
    found = diagnosed([first, silent])
    assert (found.root_cause.kind, found.root_cause.node) == ("node.lost", "gpu-1")
    assert "gpu-1: no answer in 60 s" in found.read.left_out


def test_a_job_that_goes_on_is_called_so() -> None:
    rising = {number: {"step": 42, "step_before": 40} for number in range(8)}
    moving = {number: {"moved": True, "left": True} for number in range(8)}
    for each in (rising, moving):
        cause = diagnosed(job(each)).root_cause
        assert (cause.kind, cause.rank) == ("progress.running", None)


def test_what_a_kernel_said_of_a_wait_is_over_where_the_job_goes_on() -> None:
    line = "2026-11-30T14:01:00+00:00 x kernel: nfs: server s not responding, still trying"
    moving = {number: {"moved": True, "left": True} for number in range(8)}
    assert diagnosed(job(moving, kernel=(line,))).root_cause.kind == "progress.running"
    assert diagnosed(job(kernel=(line,))).root_cause.kind == "storage.stale"


def test_a_job_whose_ranks_only_spin_is_not_called_one_that_goes_on() -> None:
    spinning = {number: {"state": "R", "cpu_s": 3.0, "wchan": ""} for number in range(8)}
    assert diagnosed(job(spinning)).root_cause.kind == "network.rdma_path"


def test_the_rank_that_never_waits_is_the_slow_one() -> None:
    looked = {
        number: {"moved": True, "left": number != 2, "looks": 8, "waits": 0 if number == 2 else 8}
        for number in range(8)
    }
    found = diagnosed(job(looked))
    assert (found.root_cause.kind, found.root_cause.rank) == ("slow.rank", 2)
    assert found.root_cause.confidence is Confidence.POSSIBLE


def test_a_suspended_job_blames_no_rank() -> None:
    cause = diagnosed(job({number: {"state": "T"} for number in range(8)})).root_cause
    assert (cause.kind, cause.rank) == ("program.stopped", None)


def test_many_ranks_in_storage_are_told_together_with_the_file_system() -> None:
    stuck = {number: {"state": "D", "wchan": "rpc_wait_bit_killable"} for number in range(40, 80)}
    cause = diagnosed(job(stuck, world=128)).root_cause
    assert (cause.kind, cause.rank) == ("storage.stale", None)
    assert "ranks 40-79 wait for NFS" in cause.evidence[0].text


def test_a_rank_behind_by_metrics_is_named_and_by_logs_is_not() -> None:
    here = {number: {"step": 41, "exact_step": True} for number in range(8)}
    cause = diagnosed(job({**here, 3: {"step": 40, "exact_step": True}})).root_cause
    assert (cause.kind, cause.rank) == ("collective.desync", 3)
    logs = {number: {"step": 41} for number in range(8)}
    assert diagnosed(job({**logs, 3: {"step": 40}})).root_cause.kind == "network.rdma_path"


def test_two_sides_of_the_same_size_accuse_nobody() -> None:
    half = {number: {"threads": (main(f"{C10D}:2700 broadcast", OWN),)} for number in range(4)}
    cause = diagnosed(job(half)).root_cause
    assert (cause.kind, cause.rank, cause.confidence) == ("collective.mismatch", None, Confidence.POSSIBLE)


def test_stages_of_a_pipeline_are_not_called_wrong() -> None:
    stages = {number: {"threads": (main(f"{C10D}:2200 recv", OWN),)} for number in range(4)}
    assert diagnosed(job(stages)).root_cause.kind == "unknown"


def test_ranks_that_could_not_be_looked_into_are_not_odd() -> None:
    found = diagnosed(job({3: {"threads": (), "moved": None}}, missed=("rank 3: stacks: not permitted",)))
    assert found.root_cause.kind == "unknown"
    assert found.read.left_out == ("gpu-0: rank 3: stacks: not permitted",)


def test_ranks_that_wait_to_start_are_no_matter_of_the_network_yet() -> None:
    meets = {"threads": (main(f"{C10D}:1700 init_process_group", OWN),)}
    cause = diagnosed(job(dict.fromkeys(range(8), meets))).root_cause
    assert (cause.kind, cause.rank, cause.confidence) == ("rendezvous.timeout", None, Confidence.POSSIBLE)


def test_ranks_that_are_dealt_out_among_nodes_are_not_called_gone() -> None:
    """As by `--distribution=cyclic`: ranks 0 and 2 on one node, 1 and 3 on the other, of which one was looked at."""
    first = job(world=4, per_node=4)[0]
    dealt = [rank(number, world=4, local_rank=number // 2, local_world=2) for number in (0, 2)]
    assert diagnosed([first.model_copy(update={"asked": 0, "ranks": tuple(dealt)})]).root_cause.kind == "unknown"


def test_the_minority_is_named_where_waiting_is_not_recognised() -> None:
    """As where all wait for their GPU within a call of a library, and one is in its evaluation."""
    synced = main("/job/train.py:90 step", OWN)
    ranks = {number: {"threads": (synced,), "state": "R", "wchan": ""} for number in range(8)}
    together = diagnosed(job(ranks)).root_cause
    assert (together.kind, together.rank, together.confidence) == ("collective.stuck", None, Confidence.POSSIBLE)
    cause = diagnosed(job({**ranks, 6: {"threads": (main("/job/eval.py:4 run", OWN),), "state": "R"}})).root_cause
    assert (cause.kind, cause.rank, cause.confidence) == ("collective.desync", 6, Confidence.POSSIBLE)
    for odd, kind in ((LOADER, "slow.data"), ((f"{C10D}:2900 barrier", OWN), "collective.desync")):
        cause = diagnosed(job({**ranks, 6: {"threads": (main(*odd),)}})).root_cause
        assert (cause.kind, cause.rank) == (kind, 6)


@pytest.mark.parametrize(
    ("beside", "kind", "confidence"),
    [
        ({"links": (Link(name="mlx5_1/1", kind="rdma", up=False),)}, "network.link_down", "likely"),
        ({"links": (RISES,)}, "network.congestion", "possible"),
        ({"gpus": (Gpu(name="gpu-3", wrong="GPU is lost"),)}, "gpu.off_bus", "likely"),
        ({"gpus": (Gpu(name="gpu-3", throttled=("hw_thermal_slowdown",)),)}, "gpu.power_or_thermal", "possible"),
        ({"gpus": (Gpu(name="gpu-3", uncorrected=2),)}, "gpu.ecc", "possible"),
        ({"kernel": ("2026-11-30T14:01:00+00:00 x kernel: nfs: server s not responding, still trying",)},
         "storage.stale", "likely"),
    ],
)  # fmt: skip
def test_what_a_node_says_beside_its_ranks_is_the_cause_where_all_wait(
    beside: dict[str, Any], kind: str, confidence: str
) -> None:
    snapshots = job(world=16)
    found = diagnosed([snapshots[0], snapshots[1].model_copy(update=beside)])
    assert (found.root_cause.kind, found.root_cause.node) == (kind, "gpu-1")
    assert found.root_cause.confidence.value == confidence


def test_a_cable_that_was_never_there_is_no_fault() -> None:
    found = diagnosed(job(links=(Link(name="eth9", kind="ethernet", up=False, was_up=False),)))
    assert found.root_cause.kind == "network.rdma_path"


def test_an_end_of_another_process_is_no_cause_while_all_ranks_are_there() -> None:
    line = "2026-11-30T14:01:00+00:00 x kernel: Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB"
    assert diagnosed(job(kernel=(line,))).root_cause.kind == "network.rdma_path"
    assert diagnosed(job({3: None}, kernel=(line,))).root_cause.kind == "memory.cgroup"  # type: ignore[dict-item]


def test_a_thousand_ranks_are_a_few_rows() -> None:
    steps = {number: {"step": 41} for number in range(1000)}
    stopped = {"state": "T", "wchan": "do_signal_stop", "step": 41}
    found = diagnosed(job({**steps, 513: stopped, 77: {"threads": (main(*LOADER),)}}, world=1000))
    assert [len(each.ranks) for each in found.standing] == [1, 1, 998]
    last = found.standing[-1]
    assert (last.doing, last.where, last.states) == ("waits in a collective (all_reduce)", "train.py:88 step", "S")
    assert (last.first_step, last.last_step, len(last.nodes)) == (41, 41, 125)
    assert found.root_cause.rank == 513


def test_a_collective_within_a_checkpoint_is_a_collective_and_a_loader_behind_a_lock_is_a_loader() -> None:
    dcp = f"{TORCH}/distributed/checkpoint/utils.py:120 gather_object"
    assert stand(rank(0, threads=(main(f"{C10D}:2 gather_object", dcp, OWN),))).doing is Doing.COLLECTIVE
    queue = "/usr/lib/python3.11/queue.py:171 Queue.get"
    assert stand(rank(0, threads=(main(queue, *LOADER),))).doing is Doing.DATA


def test_a_program_of_that_name_is_no_debugger() -> None:
    assert stand(rank(0, state="R", wchan="", threads=(main("/job/code.py:1 f"),))).doing is Doing.OWN


_words = st.text(max_size=12)
_frame = st.builds(
    Frame, name=_words, file=st.sampled_from([C10D, "/a.py", "<frozen importlib._bootstrap>", ""]) | _words
)
_thread = st.builds(
    Thread, name=_words, main=st.booleans(), interpreter=st.booleans(), frames=st.lists(_frame, max_size=4).map(tuple)
)
_waits = st.builds(Waits, name=_words, state=st.sampled_from("RSDZT"), wchan=_words)
_rank = st.builds(
    Rank,
    rank=st.integers(0, 999_999),
    world=st.integers(1, 999_999),
    local_rank=st.none() | st.integers(0, 999_999),
    local_world=st.none() | st.integers(1, 9_999),
    pid=st.integers(0, 9),
    state=st.sampled_from(["R", "S", "D", "T", "t", "Z", "", "?"]),
    wchan=st.sampled_from(["rpc_x", "pipe_read", "futex_wait", "io_schedule"]) | _words,
    threads=st.lists(_thread | st.just(WAITING), max_size=3).map(tuple),
    moved=st.none() | st.booleans(),
    left=st.booleans(),
    looks=st.integers(0, 9),
    waits=st.integers(0, 9),
    cpu_s=st.none() | st.floats(0, 100),
    step=st.none() | st.integers(0, 5),
    step_before=st.none() | st.integers(0, 5),
    exact_step=st.booleans(),
    children=st.lists(_waits, max_size=2).map(tuple),
)
_snapshot = st.builds(
    Snapshot,
    node=st.sampled_from(["gpu-0", "gpu-1", "x"]),
    time=st.datetimes(),
    interval_s=st.floats(0, 10),
    answered=st.booleans(),
    asked=st.integers(0, 4),
    ranks=st.lists(_rank, max_size=6).map(tuple),
    ended=st.lists(_waits, max_size=2).map(tuple),
    kernel=st.lists(_words, max_size=2).map(tuple),
    missed=st.lists(_words, max_size=2).map(tuple),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_snapshot, min_size=1, max_size=4))
def test_no_snapshots_make_it_fail(snapshots: list[Snapshot]) -> None:
    found = diagnosed(snapshots)
    assert sum(len(each.ranks) for each in found.standing) == len({r.rank for each in snapshots for r in each.ranks})
    assert all(len(line.text) < 4000 for line in told(snapshots))
