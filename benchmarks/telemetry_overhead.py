"""What telemetry costs a 50 ms step: all its threads' processor time and the calls on the training thread, against 1 %.

python benchmarks/telemetry_overhead.py

Half of a step is Python, which holds the interpreter's lock, half is a matrix product, which does not. Blocks of steps
with and without telemetry take turns. With it: log file, Prometheus' server, goodput, alarms, hardware, waits for the
slowest rank, and traces sent to a receiver in a process of its own, of the usual sample and of every step. The first
turn is shown and not counted: the process itself is new.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the other threads' time is telemetry's alone

import multiprocessing
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import begin
from runtime.control import Rows
from runtime.place import Place
from runtime.telemetry import Telemetry, TelemetryConfig
from runtime.telemetry.waiting import Waiting

STEP_S = 0.05
WARM = 5
STEPS = 60
PAIRS = 7
ALLOWED = 0.01
PHASES = ("forward", "backward", "communication", "optimizer")


class Peers:
    """Rank 0 of two, whose peer sends the same: what waits for the slowest cost, without the network."""

    def __init__(self) -> None:
        self.place = Place(world=2, local_world=2)

    def gather(self, value: bytes) -> list[bytes]:
        """Both names."""
        return [value, value]

    def begin_rows(self, *values: int) -> Rows:
        """Both rows."""
        return Rows([values, values])


class Work:
    """A step's work, measured out so that it takes about STEP_S."""

    def __init__(self) -> None:
        self._matrix = np.ones((256, 256))
        self._rounds, self._products = 1000, 1
        while self._took(self._python) < STEP_S / 2:
            self._rounds = int(self._rounds * 1.2)
        while self._took(self._numpy) < STEP_S / 2:
            self._products += 1

    def part(self, of: int) -> None:
        """One of so many equal parts."""
        self._python(of)
        self._numpy(of)

    def _took(self, work: Any) -> float:
        start = time.thread_time()
        work(1)
        return time.thread_time() - start

    def _python(self, of: int) -> None:
        total = 0
        for each in range(self._rounds // of):
            total += each & 7

    def _numpy(self, of: int) -> None:
        for _ in range(max(1, self._products // of)):
            self._matrix @ self._matrix


def receive(told: Connection) -> None:
    """A receiver of OTLP that answers and forgets."""
    import grpc  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    told.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def without(work: Work) -> dict[str, float]:
    """A block without telemetry: wall seconds of a step."""
    started = time.perf_counter()
    for _ in range(STEPS):
        for _ in PHASES:
            work.part(len(PHASES))
    return {"wall_s": (time.perf_counter() - started) / STEPS}


def with_it(work: Work, config: TelemetryConfig) -> dict[str, float]:
    """A block with telemetry: seconds of a step by the wall, of the lanes' threads, of the training thread's calls."""
    telemetry = Telemetry(config, Place())
    waiting = Waiting(config.waits_every_s, Peers(), telemetry.waited, by_phase=True)  # type: ignore[arg-type]
    for number in range(WARM):  # what is done once is no part of a step: files, connections, first readings
        with telemetry.phase(PHASES[0]):
            for _ in PHASES:
                work.part(len(PHASES))
        telemetry.step_done(number)
    telemetry("begun")
    traced = config.traces is not None and config.traces.share == 1
    while any(lane._receiver is None for lane in telemetry._lanes if traced or lane.name != "traces"):
        time.sleep(0.1)
    telemetry.flush(10)
    threads = time.process_time() - time.thread_time()
    started = time.perf_counter()
    for number in range(WARM, WARM + STEPS):
        for name in PHASES:
            with telemetry.phase(name):
                work.part(len(PHASES))
        done = telemetry.step_done(number, samples=32, tokens=4096, loss=1.0, grad_norm=0.5)
        waiting.heard(number, STEP_S, waiting.done(number, done))
        if number % 10 == 0:
            telemetry("checkpoint.saved", step=number, seconds=1.0, bytes=10**9)
    wall = time.perf_counter() - started
    telemetry.flush(30)
    threads = time.process_time() - time.thread_time() - threads
    # What the calls take by themselves: the same ones with nothing between them.
    spent = time.thread_time()
    for number in range(WARM + STEPS, WARM + 2 * STEPS):
        for name in PHASES:
            with telemetry.phase(name):
                pass
        done = telemetry.step_done(number, samples=32, tokens=4096, loss=1.0, grad_norm=0.5)
        waiting.heard(number, STEP_S, waiting.done(number, done))
    calls = time.thread_time() - spent
    telemetry.close(30)
    if any(telemetry.dropped.values()):
        raise RuntimeError(f"not everything was delivered: {telemetry.dropped}")
    return {"wall_s": wall / STEPS, "threads_s": threads / STEPS, "calls_s": calls / STEPS}


def main() -> None:
    """Runs the blocks in turns and prints the cost against what is allowed."""
    run = begin("telemetry_overhead")
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
    receiver.start()
    work, raw = Work(), []
    try:
        endpoint = f"http://127.0.0.1:{ours.recv()}"
        with tempfile.TemporaryDirectory() as folder:
            for pair in range(PAIRS):
                found = {"without": without(work)}
                for name, share in (("usual", 0.01), ("every_step_traced", 1.0)):
                    config = TelemetryConfig.model_validate(
                        {
                            "console": "off",
                            "folder": str(Path(folder) / f"{name}-{pair}"),
                            "scrape": {"host": "127.0.0.1", "port": 0},
                            "traces": {"endpoint": endpoint, "share": share},
                        }
                    )
                    found[name] = with_it(work, config)
                raw.append(found)
    finally:
        receiver.terminate()
    counted = raw[1:]
    step_s = median(each["without"]["wall_s"] for each in counted)
    names = [name for name in raw[0] if name != "without"]
    cost = {
        name: median(each[name]["threads_s"] + each[name]["calls_s"] for each in counted) / STEP_S for name in names
    }
    wall = {name: median(each[name]["wall_s"] / each["without"]["wall_s"] for each in counted) for name in names}
    run.end(
        f"telemetry: {cost['usual']:.2%} of a {STEP_S * 1000:.0f} ms step in processor time, {ALLOWED:.0%} allowed "
        f"({cost['every_step_traced']:.2%} with every step traced; by the wall {wall['usual']:.3f} of a step without)",
        cost["usual"] / ALLOWED,
        {
            "step_s": STEP_S,
            "wall_step_without_s": round(step_s, 4),
            "cost_of_a_step": {name: round(each, 5) for name, each in cost.items()},
            "wall_against_without": {name: round(each, 4) for name, each in wall.items()},
            "blocks": raw,
        },
    )


if __name__ == "__main__":
    main()
