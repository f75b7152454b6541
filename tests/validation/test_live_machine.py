"""What is read of a machine: ranks among other processes, steps, links, GPUs, the kernel's log; none hangs for it."""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from recorded_host import sysfs

from validation.diagnose.job import read_job
from validation.diagnose.live import links, odd, processes, steps
from validation.diagnose.live.bounded import run, within
from validation.diagnose.live.collect import collect, local_job
from validation.diagnose.live.gpus import gpus
from validation.diagnose.live.kernel_log import NoLog, kernel_log, of_job
from validation.diagnose.live.processes import children, ranks_here, waits_of
from validation.node.measure import Unmeasurable

ROOT = Path(__file__).parents[2]
BORN = 1_000_000
"""Ticks since the machine started."""


def proc(root: Path, processes: Mapping[int, tuple[int, str, Mapping[str, str]]]) -> Path:
    """A /proc of these processes: parent, program, environment."""
    root.mkdir()
    (root / "stat").write_text("cpu 1 2 3\nbtime 1796000000\n")
    for pid, (parent, program, environment) in processes.items():
        folder = root / str(pid)
        folder.mkdir()
        fields = ["S", str(parent), *["0"] * 9, "250", "50", *["0"] * 6, str(BORN), "0", "0"]
        (folder / "stat").write_text(f"{pid} (({program}) x) {' '.join(fields)}\n")
        (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in environment.items()))
        (folder / "exe").symlink_to(f"/usr/bin/{program}")
    return root


def torch_rank(rank: int, world: int = 8, local: int | None = None, **more: str) -> dict[str, str]:
    local = rank if local is None else local
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": "8",
        "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", **more,
    }  # fmt: skip


SLURM = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
OPERATOR = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
"""As a Kubernetes operator sets it for a pod: of pods, not of ranks."""

TREES: list[tuple[str, dict[int, tuple[int, str, Mapping[str, str]]], list[tuple[int, int, str]]]] = [
    (
        "srun, a shell, torchrun, ranks, their workers",
        {
            90010: (1, "slurmstepd", {}),
            90011: (90010, "bash", SLURM),
            90012: (90011, "python3.11", SLURM),
            90013: (90012, "python3.11", {**SLURM, **torch_rank(8, 16, 0)}),
            90014: (90012, "python3.11", {**SLURM, **torch_rank(9, 16, 1)}),
            90015: (90014, "python3.11", {**SLURM, **torch_rank(9, 16, 1)}),
        },
        [(90013, 8, "4711"), (90014, 9, "4711")],
    ),
    (
        "srun's own tasks, each in a shell",
        {90011: (1, "bash", SLURM), 90012: (90011, "python3", SLURM), 90013: (90012, "python3", SLURM)},
        [(90012, 1, "4711")],
    ),
    (
        "a batch script and a shell of somebody who looks, beside srun's tasks",
        {
            90010: (1, "bash", {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}),
            90011: (1, "bash", {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}),
            90012: (1, "python3", SLURM),
        },
        [(90012, 1, "4711")],
    ),
    (
        "a pod's torchrun with one rank",
        {
            90011: (1, "python3", OPERATOR),
            90012: (90011, "python3", torch_rank(1, 2, 0)),
        },
        [(90012, 1, "port-29500")],
    ),
    ("no rank", {90011: (1, "python3", {"RANK": "x"}), 90012: (1, "nginx", {})}, []),
    ("a program that is no Python", {90011: (1, "train", torch_rank(0))}, [(90011, 0, "port-29500")]),
    (
        "two jobs",
        {90011: (1, "python3", torch_rank(0)), 90012: (1, "python3", torch_rank(0, TORCHELASTIC_RUN_ID="other"))},
        [(90012, 0, "other"), (90011, 0, "port-29500")],
    ),
]


@pytest.mark.parametrize(("tree", "ranks"), [each[1:] for each in TREES], ids=[each[0] for each in TREES])
def test_ranks_are_told_from_launchers_shells_and_workers(
    tree: dict[int, tuple[int, str, Mapping[str, str]]], ranks: list[tuple[int, int, str]], tmp_path: Path
) -> None:
    found = ranks_here(proc(tmp_path / "proc", tree))
    assert [(each.pid, each.rank, each.job) for each in found] == ranks


def test_a_name_with_brackets_and_blanks_does_not_shift_what_is_read(tmp_path: Path) -> None:
    root = proc(tmp_path / "proc", {90011: (7, "a) R 1 (b", {})})
    waits = waits_of(root / "90011", 90011)
    assert waits is not None
    assert (waits.name, waits.state) == ("(a) R 1 (b) x", "S")
    assert children(root, {7}) == {7: [90011]}


def test_a_real_process_is_found_by_what_it_was_started_with() -> None:
    environment = {**os.environ, **torch_rank(5, TORCHELASTIC_RUN_ID="a-test-of-processes")}
    sleeping = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        end = time.monotonic() + 30
        while not (found := [each for each in ranks_here() if each.job == "a-test-of-processes"]):
            assert time.monotonic() < end
        assert [(each.pid, each.rank, each.world, each.local_world) for each in found] == [(sleeping.pid, 5, 8, 8)]
    finally:
        sleeping.kill()
        sleeping.communicate()


@pytest.fixture
def telemetry(tmp_path: Path) -> Path:
    """The folder of a run's telemetry, with the log of rank 3; a process that has the log open."""
    (tmp_path / "run" / "logs").mkdir(parents=True)
    log = tmp_path / "run" / "logs" / "rank-00003.jsonl"
    log.write_text(
        '{"event":"a","step":7}\n{"event":"b","step":9}\n{"event":"c","step":null}\nno json\n{"event":"d","st'
    )
    (tmp_path / "proc" / "fd").mkdir(parents=True)
    (tmp_path / "proc" / "fd" / "4").symlink_to(log)
    (tmp_path / "proc" / "fd" / "0").symlink_to("/dev/null")
    return tmp_path


@pytest.fixture
def metrics() -> Iterator[Callable[[str], int]]:
    """Answers a scrape with a text; gives the port."""
    servers: list[HTTPServer] = []

    def serve(text: str) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return int(servers[-1].server_address[1])

    yield serve
    for each in servers:
        each.shutdown()
        each.server_close()


def target(telemetry: Path, port: int) -> None:
    (telemetry / "run" / "targets").mkdir()
    told = [{"targets": [f"elsewhere.example:{port}"], "labels": {}}]
    (telemetry / "run" / "targets" / "rank-00003.json").write_text(json.dumps(told))


def test_a_step_is_that_of_the_metrics_of_this_machine_else_of_the_log(
    telemetry: Path, metrics: Callable[[str], int]
) -> None:
    assert steps.step_of(telemetry / "proc") == steps.Step(9, exact=False)
    target(telemetry, metrics('# TYPE muster_step gauge\nmuster_step{run="r",rank="3",node="n"} 4120.0\n'))
    assert steps.step_of(telemetry / "proc") == steps.Step(4120, exact=True)


@pytest.mark.parametrize(
    "text", ["", 'muster_step{rank="3"} NaN\n', 'muster_step{a="1"} 1.0\nmuster_step{a="2"} 2.0\n']
)
def test_metrics_that_tell_no_step_are_no_step(telemetry: Path, metrics: Callable[[str], int], text: str) -> None:
    target(telemetry, metrics(text))
    assert steps.step_of(telemetry / "proc") == steps.Step(9, exact=False)


def test_a_process_without_telemetry_has_no_step(tmp_path: Path) -> None:
    assert steps.step_of(tmp_path) is None


def net(root: Path, **more: str) -> Path:
    files = {
        "rail0/device/x": "", "rail0/operstate": "up", "rail0/statistics/rx_crc_errors": "5",
        "rail0/carrier_up_count": "1",
        "rail1/device/x": "", "rail1/operstate": "down", "rail1/carrier_up_count": "2", "lo/operstate": "unknown",
        "spare/device/x": "", "spare/operstate": "down", "spare/carrier_up_count": "0",
    }  # fmt: skip
    return sysfs(root, files | {name.replace("__", "/"): value for name, value in more.items()})


def test_links_that_are_down_and_counters_that_rise_are_told(tmp_path: Path) -> None:
    rdma = {"mlx5_0/ports/1/state": "4: ACTIVE", "mlx5_0/ports/1/hw_counters/packet_seq_err": "10"}
    before = links.sample(net(tmp_path / "a"), sysfs(tmp_path / "b", rdma))
    rdma["mlx5_0/ports/1/hw_counters/packet_seq_err"] = "17"
    after = links.sample(net(tmp_path / "c", rail0__statistics__rx_crc_errors="2"), sysfs(tmp_path / "d", rdma))
    told = {each.name: each for each in links.between(before, after)}
    assert sorted(told) == ["mlx5_0/1", "rail0", "rail1", "spare"]
    assert told["mlx5_0/1"].rises == {"packet_seq_err": 7}
    assert told["rail0"].rises == {}  # cleared meanwhile
    assert [(told[name].up, told[name].was_up) for name in ("rail1", "spare")] == [(False, True), (False, False)]


def test_segments_that_are_sent_again_count_where_they_are_many() -> None:
    assert links.again((0, 0), (10_000, 150)) == ()
    assert links.again((0, 0), (50, 90)) == ()
    (link,) = links.again((0, 0), (10_000, 900))
    assert link.rises == {links.RETRANSMITTED: 900}
    assert links.again(None, (1, 1)) == ()


class Nvml:
    """GPUs that answer as they are told; an exception is raised."""

    def __init__(self, *told: dict[str, Any]) -> None:
        self._told = told

    def each_gpu(self, read: Callable[[Any], Any]) -> dict[str, Any]:
        return {f"gpu-{index}": read(_Device(f"gpu-{index}", told)) for index, told in enumerate(self._told)}


class _Device:
    def __init__(self, name: str, told: dict[str, Any]) -> None:
        self.name, self._told = name, told

    def __call__(self, query: str, *_: Any) -> Any:
        answer = self._told.get(query, Unmeasurable("not supported"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_gpu_that_does_not_answer_says_why_and_one_that_cannot_tell_is_not_wrong() -> None:
    lost = RuntimeError("GPU is lost")
    first, second = gpus(Nvml({"MemoryInfo": lost, "ClockInfo": lost}, {"CurrentClocksThrottleReasons": 0x044}))  # type: ignore[arg-type]
    assert first.wrong == "GPU is lost"
    assert (second.wrong, second.busy_percent, second.throttled) == ("", None, ("hw_thermal_slowdown",))


@pytest.mark.parametrize("journal", [None, "echo 'No journal files were found.' >&2", "echo 'Hint: ...' >&2", "exit 1"])
def test_the_kernels_log_begins_with_the_job_or_says_why_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str | None
) -> None:
    if journal is not None:
        (tmp_path / "journalctl").write_text(f"#!/bin/sh\n{journal}\n")
        (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoLog, match="as root"):
        kernel_log("n", datetime.now(UTC), tmp_path / "none")
    if os.access("/dev/kmsg", os.R_OK):
        assert kernel_log("n", datetime.now(UTC) + timedelta(days=1)) == []


def test_a_process_of_another_job_that_was_out_of_memory_is_left_out() -> None:
    def lines(group: str, pid: int) -> list[str]:
        return [
            f"t n kernel: oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/s,task_memcg={group},task=py,pid={pid},uid=0",
            f"t n kernel: Memory cgroup out of memory: Killed process {pid} (python) total-vm:1kB",
        ]

    other, mine = lines("/slurm/job_12/step_0/task_0", 7), lines("/slurm/job_4711/step_0/task_5", 70)
    disk = ["t n kernel: Out of memory: Killed process 9 (x)"]
    assert of_job([*other, *mine, *disk], ["/slurm/job_4711/step_1/task_0"]) == [*mine, *disk]
    assert of_job([*other, *mine, *disk], ["/"]) == disk


def test_a_command_that_is_late_or_says_too_much_is_ended_and_what_it_said_is_kept() -> None:
    late = run(["sh", "-c", "echo first; exec sleep 60"], 0.5, 100)
    assert (late.code, late.out) == (None, b"first\n")
    stubborn = run([sys.executable, "-c", STUBBORN], 5.0, 100)
    assert stubborn.code is None
    large = run(["sh", "-c", "exec cat /dev/zero"], 30, 1000)
    assert (large.code, large.large) == (None, True)
    assert run(["sh", "-c", "echo x; echo y >&2; exit 3"], 30, 100) == (3, b"x\n", "y\n", False)


STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x' * 200, flush=True); time.sleep(60)"
)


def test_a_read_that_hangs_is_left_behind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert within(0.1, lambda: (tmp_path / "fifo").read_text(), "nothing") == "nothing"
    assert within(10, lambda: "read", "nothing") == "read"
    with (tmp_path / "fifo").open("w"):
        """Lets the reader end."""


@pytest.mark.parametrize("scraped", [True, False])
def test_the_step_of_a_run_with_telemetry_is_found_and_rises(tmp_path: Path, scraped: bool) -> None:
    name = f"live-{secrets.token_hex(4)}"
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": name, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", STEPS, str(tmp_path), "yes" if scraped else ""]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            end = time.monotonic() + 60
            while True:
                snapshot = collect(local_job(name), interval_s=1.0).model_copy(update={"kernel": (), "links": ()})
                found = read_job([], live=[snapshot])
                (told,) = snapshot.ranks
                if told.step and told.step_before and told.step > told.step_before and told.exact_step is scraped:
                    break
                assert time.monotonic() < end, told
        finally:
            process.kill()
    assert (found.root_cause.kind, found.last_step) == ("progress.running", told.step)
    assert "steps of 1 ranks rose by" in found.root_cause.evidence[0].text


STEPS = """
import sys, time
from pathlib import Path
from runtime.telemetry.config import Scrape, TelemetryConfig
from runtime.telemetry.telemetry import Telemetry

scrape = Scrape(host="127.0.0.1", port=0) if sys.argv[2] else None
telemetry = Telemetry(TelemetryConfig(folder=Path(sys.argv[1]), console="off", scrape=scrape))
for step in range(1, 1_000_000):
    with telemetry.phase("forward"):
        time.sleep(0.02)
    telemetry.step_done(step)
    telemetry("step.told")
    if step == 3:
        print("here", flush=True)
"""


def test_a_process_that_is_stuck_may_be_a_rank_and_none_is_called_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = {10 + rank: (1, "python3.11", torch_rank(rank, world=3, LOCAL_WORLD_SIZE="3")) for rank in range(3)}
    root = proc(tmp_path / "proc", tree)
    (root / "12" / "environ").unlink()
    os.mkfifo(root / "12" / "environ")  # a read of it hangs, as of a process that is stuck while it maps memory
    monkeypatch.setattr(processes, "ENVIRONMENT_S", 0.2)
    unread: list[int] = []
    ranks = local_job(proc=root, unread=unread)
    assert ([each.rank for each in ranks], unread) == ([0, 1], [12])
    seen = collect(ranks, interval_s=0.0, proc=root, unread=unread)
    assert "stuck in the kernel" in " ".join(seen.missed)
    lines = [each.text for each in odd.told([seen.model_copy(update={"asked": 1})])]
    assert not [each for each in lines if "has no process" in each]
    gone = [each.text for each in odd.told([seen.model_copy(update={"asked": 1, "unread": 0})])]
    assert [each for each in gone if "rank 2 has no process" in each]


@pytest.mark.parametrize("step", ["1e99", "1e16", "999999999999999e9"])
def test_a_step_that_no_job_has_made_is_none(telemetry: Path, metrics: Callable[[str], int], step: str) -> None:
    metrics(f'muster_step{{rank="0"}} {step}\n')
    found = steps.step_of(telemetry)
    assert found is None or found.number < steps.MOST_STEPS
