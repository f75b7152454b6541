"""A run of four ranks reaches real receivers: the OpenTelemetry collector, Prometheus, Loki."""

import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_receivers import BUILD_LIMIT_S, Server, until

ROOT = Path(__file__).parents[3]
RANKS, STEPS = 4, 12

pytestmark = pytest.mark.timeout(BUILD_LIMIT_S)


@pytest.fixture(scope="module")
def trained(
    prometheus: Server, collector: Server, loki: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The folder of a run that has done its steps and still answers Prometheus."""
    folder = tmp_path_factory.mktemp("run")
    config = {
        "run": "four",
        "folder": str(prometheus.folder),
        "console": "off",
        "scrape": {"host": "127.0.0.1", "port": 0},
        "traces": {"endpoint": collector.url, "share": 1.0},
        "loki": {"url": loki.url},
        "hardware_every_s": 1,
        "worth": {"flops_per_token": 96, "peak_flops": 1e9, "cost_per_rank_hour": 2.5},
    }
    (folder / "config.json").write_text(json.dumps(config))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    script = [str(Path(__file__).with_name("four_ranks.py")), str(folder / "config.json"), str(STEPS)]
    with (folder / "output").open("wb") as output:
        job = subprocess.Popen(
            [sys.executable, *torchrun, *script, str(folder / "go")], cwd=ROOT, stdout=output, stderr=output
        )
    try:
        until(lambda: len(list(folder.glob("trained-*"))) == RANKS or job.poll() is not None, 120)
        assert len(list(folder.glob("trained-*-True"))) == RANKS, (folder / "output").read_text()
        yield folder
        (folder / "go").touch()
        assert job.wait(60) == 0, (folder / "output").read_text()
        assert len(list(folder.glob("dropped-*-0"))) == RANKS
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()


def received(collector: Server) -> list[dict[str, Any]]:
    """All spans that the collector wrote."""
    lines = (collector.folder / "spans.json").read_text().splitlines()
    return [
        span
        for line in lines
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_a_trace_shows_all_ranks_of_a_step_under_one_root(trained: Path, collector: Server) -> None:
    expected = STEPS + RANKS * STEPS * 6  # the roots; each rank's span and its five phases
    spans = until(lambda: found if len(found := received(collector)) >= expected else None)
    assert len(spans) == expected
    assert len({span["spanId"] for span in spans}) == expected
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        by_trace.setdefault(span["traceId"], []).append(span)
    assert len(by_trace) == STEPS
    for trace in by_trace.values():
        (root,) = [span for span in trace if not span.get("parentSpanId")]
        ranks = {span["name"]: span for span in trace if span.get("parentSpanId") == root["spanId"]}
        assert set(ranks) == {f"rank {rank}" for rank in range(RANKS)}
        for rank in ranks.values():
            phases = {span["name"]: span for span in trace if span.get("parentSpanId") == rank["spanId"]}
            assert set(phases) == {"data", "forward", "backward", "optimizer"}
            (inner,) = [span for span in trace if span.get("parentSpanId") == phases["backward"]["spanId"]]
            assert inner["name"] == "communication"
            for span in (*phases.values(), inner):
                start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                assert int(rank["startTimeUnixNano"]) <= start <= end <= int(rank["endTimeUnixNano"])


def ask(prometheus: Server, query: str) -> dict[str, float]:
    """The values that Prometheus has, by rank."""
    answer = prometheus.get(f"/api/v1/query?query={urllib.parse.quote(query)}")
    return {each["metric"].get("rank", ""): float(each["value"][1]) for each in answer["data"]["result"]}


def test_prometheus_scrapes_every_rank(trained: Path, prometheus: Server) -> None:
    ranks = {str(rank) for rank in range(RANKS)}
    everything = dict.fromkeys(ranks, float(STEPS))
    # Prometheus has asked before the last step too, and asks again.
    until(lambda: ask(prometheus, 'muster_step_seconds_count{run="four"}') == everything)
    until(lambda: ask(prometheus, "muster_goodput_useful_steps") == {"0": float(STEPS)})
    assert ask(prometheus, 'muster_step{run="four"}') == dict.fromkeys(ranks, float(STEPS))
    assert ask(prometheus, "muster_samples_total") == dict.fromkeys(ranks, 8.0 * STEPS)
    whole = ask(prometheus, "sum by (rank) (muster_step_part_seconds_total)")
    for rank, seconds in ask(prometheus, "muster_step_seconds_sum").items():
        assert whole[rank] == pytest.approx(seconds, rel=1e-6)
    parts = prometheus.get("/api/v1/label/part/values")["data"]
    assert {"data", "forward", "backward", "communication", "optimizer", "rest"} <= set(parts)
    assert all(0 < share < 1 for share in ask(prometheus, "muster_mfu_ratio").values())
    assert set(ask(prometheus, "muster_process_resident_bytes")) == ranks
    assert set(ask(prometheus, "muster_host_memory_bytes")) == {"0"}  # told once a node
    assert ask(prometheus, "muster_goodput_cost_per_useful_step")["0"] > 0
    assert set(ask(prometheus, "sum by (rank) (muster_telemetry_dropped_total)").values()) == {0.0}


def all_told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, once the last of every rank is among them."""
    return events if sum(each["event"] == "run.trained" for each in events) >= RANKS else []


def test_loki_has_the_events_of_every_rank_and_no_secret(trained: Path, loki: Server) -> None:
    query = urllib.parse.quote('{job="muster",run="four"}')

    def lines() -> list[dict[str, Any]]:
        found = loki.get(f"/loki/api/v1/query_range?query={query}&limit=1000&since=1h")["data"]["result"]
        return [json.loads(line) for stream in found for _, line in stream["values"]]

    events = until(lambda: all_told(lines()))
    for name in ("run.started", "run.trained"):
        assert sorted(each["rank"] for each in events if each["event"] == name) == list(range(RANKS))
    assert "sk-not-for-anyone" not in json.dumps(events)
    started = next(each for each in events if each["event"] == "run.started")
    assert started["api_key"] == "***"
    assert started["world"] == RANKS
    streams = loki.get("/loki/api/v1/series?" + urllib.parse.urlencode({"match[]": '{job="muster"}'}))["data"]
    assert {name for stream in streams for name in stream} <= {"job", "run", "rank", "level", "service_name"}
