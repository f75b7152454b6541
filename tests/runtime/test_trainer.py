"""ResilientTrainer: batches of any shape reach the device, and mistakes are told before anything is trained."""

from collections import namedtuple
from pathlib import Path

import pytest
import torch
from jobs import Jobs

from runtime.config import ConfigError, load, told
from runtime.exits import Exit
from runtime.trainer import _on

Pair = namedtuple("Pair", "x y")


def test_batches_of_any_shape_are_moved() -> None:
    one = torch.ones(2)
    batch = {"a": one, "b": [one, (one, "text")], "c": Pair(one, 3)}
    moved = _on(torch.device("meta"), batch)
    assert moved["a"].is_meta
    assert moved["b"][0].is_meta
    assert moved["b"][1][0].is_meta
    assert moved["b"][1][1] == "text"
    assert moved["c"].x.is_meta
    assert moved["c"].y == 3


def test_every_mistake_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("steps: 0\ncheckpoints:\n  foldr: /x\nstops: {grace_s: -1}\nsave:\n  every: 3\n")
    with pytest.raises(ConfigError) as wrong:
        load(path)
    lines = [line.removeprefix(f"{path}:").split(": ")[0:2] for line in str(wrong.value).splitlines()]
    fields = {1: "steps", 2: "checkpoints.folder", 3: "checkpoints.foldr", 4: "stops.grace_s", 6: "save.every"}
    assert lines == [[str(line), field] for line, field in fields.items()]
    assert "did you mean folder?" in str(wrong.value)


@pytest.mark.parametrize("content", ["", "- 1\n", "a: [", "a: *b\n", "checkpoints: 3\n", "steps: yes\n", "\0"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"run\.yaml:\d: "):
        load(path)


def test_changes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = {"checkpoints": {"folder": "a"}, "steps": 3}
    found = told(["--set", "steps=5", "--set", "checkpoints.folder=/b/c d", "--set", "stops.limit_s=1.5"], default=base)
    assert (found.steps, found.checkpoints.folder, found.stops.limit_s) == (5, Path("/b/c d"), 1.5)
    assert base == {"checkpoints": {"folder": "a"}, "steps": 3}
    with pytest.raises(SystemExit) as left:
        told(["--set", "steps=many"], default=base)
    assert left.value.code == Exit.FAILED
    assert "steps: 'many'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        told(["--set", "steps.x=1"], default=base)


def test_the_batch_is_kept_at_any_number_of_ranks(jobs: Jobs, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "image" / "train.py"
    batch = ["--set", "batch.batch=128", "--set", "batch.micro=64", "--set", "telemetry.console=json"]
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        codes, logs = jobs.run(script, *batch, "--set", "steps=8", folder=folder, world=world)
        assert codes == [Exit.DONE] * world, logs[0][-3000:]
        assert f'"batch":128,"accumulate":{2 // world}' in logs[0]
        assert "done after 8 steps" in logs[0]
