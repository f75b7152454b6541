"""Metrics of a real Prometheus are asked for, told as lines that rules know, and blame nobody where all is well."""

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from metric_scenes import NODES, SCENES, Scene, end, openmetrics, start

from muster import cli
from policies.exits import Exit
from validation.diagnose.finding import Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.kinds import Confidence
from validation.diagnose.metrics.measured import Wanted

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "telemetry"))

from real_receivers import Server, debian, run, until

Muster = Callable[..., tuple[Exit, str]]
BY_NAME = {scene.name: scene for scene in SCENES}


@pytest.fixture
def muster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Muster:
    """Runs a command in this process; gives its exit code and what it printed."""

    def call(*argv: str) -> tuple[Exit, str]:
        monkeypatch.setattr("sys.argv", ["muster", *argv])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Exit(ended.value.code), capsys.readouterr().out

    return call


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that knows all scenes."""
    folder = tmp_path_factory.mktemp("prometheus")
    program = debian("prometheus")
    (folder / "scenes").write_text("".join(openmetrics()))
    command = [f"{program.removesuffix('prometheus')}promtool", "tsdb", "create-blocks-from", "--quiet", "openmetrics"]
    subprocess.run([*command, folder / "scenes", folder / "data"], check=True, timeout=120)
    (folder / "prometheus.yml").write_text("{}")
    for server in run(
        folder,
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--storage.tsdb.retention.time=100y",
        "--web.listen-address=127.0.0.1:0",
    ):
        until(lambda: "Ready" in server.get("/-/ready"))  # noqa: B023 - there is one
        yield server


def log(folder: Path, scene: Scene) -> Path:
    """A log that knows when and where the job ran, and not why it ended."""
    path = folder / "rank_0.log"
    lines = [f"[{at:%Y-%m-%d %H:%M:%S}] step {n} loss 2.31" for n, at in enumerate((start(scene), end(scene)))]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def diagnosed(server: Server, folder: Path, scene: Scene) -> Diagnosis:
    return read_job([log(folder, scene)], metrics=Wanted(server.url, start(scene), end(scene), NODES))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_what_happened_is_found_and_nothing_else(prometheus: Server, tmp_path: Path, scene: Scene) -> None:
    told = diagnosed(prometheus, tmp_path, scene)
    assert not told.read.left_out
    texts = [each.text for each in told.measured]
    if not scene.rules:
        assert texts == []
        assert told.root_cause.kind == "unknown"
        return
    cause = told.root_cause
    assert cause.rule in scene.rules
    assert scene.node in {each.node for each in told.measured}
    assert all(any(words in text for text in texts) for words in scene.says), texts
    assert cause.confidence is not Confidence.CERTAIN or cause.rule.startswith("xid.")
    assert len(texts) <= 4, texts


def test_a_saved_answer_is_read_as_a_file_is(prometheus: Server, tmp_path: Path) -> None:
    scene = BY_NAME["use-fell"]
    query = {
        "query": '{__name__=~"DCGM.*"}',
        "start": start(scene).timestamp(),
        "end": end(scene).timestamp(),
        "step": 30,
    }
    url = f"{prometheus.url}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
        (tmp_path / "saved.json").write_bytes(answer.read())
    told = read_job([tmp_path / "saved.json"])
    assert told.root_cause.rule == "metrics.gpu_use_fell"
    assert told.root_cause.node == "gpu-2"
    assert told.root_cause.evidence[0].file == str(tmp_path / "saved.json")
    asked = diagnosed(prometheus, tmp_path, scene)
    assert [each.text for each in asked.measured] == [each.text for each in told.measured]


def test_the_command_asks_for_the_time_of_the_logs_and_shows_what_it_found(
    prometheus: Server, tmp_path: Path, muster: Muster
) -> None:
    scene = BY_NAME["throttled"]
    path = log(tmp_path, scene)
    for node in NODES:
        (tmp_path / f"{node}-kern.log").write_text("nothing of note\n")
    code, out = muster("diagnose", str(tmp_path), "--metrics", prometheus.url)
    assert code is Exit.PASS, out
    assert "held down by heat" in out
    assert "\nmetrics\n" in out
    told = json.loads(muster("diagnose", str(path), "--metrics", prometheus.url, "--json")[1])
    assert "give --job" in told["read"]["left_out"][0], "no node is known, and nobody is asked for all"


def test_the_job_s_time_and_nodes_are_slurm_s(
    prometheus: Server, tmp_path: Path, muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BY_NAME["link"]
    log(tmp_path, scene).rename(tmp_path / "slurm-7.out")
    row = f"7|7|ada|{','.join(NODES)}|{start(scene).timestamp():.0f}|{end(scene).timestamp():.0f}"
    controller = f"   WorkDir={tmp_path}\n   StdOut={tmp_path}/slurm-7.out"
    for name, text in (("sacct", row), ("scontrol", f"JobId=7\n{controller}")):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = json.loads(muster("diagnose", "--job", "7", "--metrics", prometheus.url, "--json")[1])
    assert told["root_cause"]["kind"] == "network.link_down"
    assert told["root_cause"]["node"] == "gpu-1"


def test_nodes_of_other_jobs_are_not_asked_for(prometheus: Server, tmp_path: Path) -> None:
    scene = BY_NAME["uncorrected"]
    wanted = Wanted(prometheus.url, start(scene), end(scene), ("gpu-0", "gpu-1"))
    assert read_job([log(tmp_path, scene)], metrics=wanted).measured == ()


def test_a_prometheus_that_does_not_know_the_nodes_says_nothing_of_them(prometheus: Server, tmp_path: Path) -> None:
    scene = SCENES[0]
    wanted = Wanted(prometheus.url, start(scene), end(scene), ("login-1",))
    told = read_job([log(tmp_path, scene)], metrics=wanted)
    assert any("knows nothing of these nodes" in each for each in told.read.left_out)
