"""The examples train, are killed, and go on as if they had not been; what the pages tell people to type does it."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from outcomes import contents

from runtime.exits import Exit

ROOT = Path(__file__).parents[2]
QUICK = ["--set", "telemetry.console=json", "--set", "telemetry.hardware_every_s=0", "--set", "save.every_steps=4"]
STEPS = {
    "language/train.py": 16,
    "image/train.py": 16,
    "image/with_lightning.py": 16,
    "image/with_accelerate.py": 16,
    "reinforcement/train.py": 80,
}
PAGES = sorted((ROOT / "docs").glob("training-*.md"))


@pytest.mark.parametrize("name", STEPS)
def test_an_example_that_is_killed_comes_to_the_same_end(jobs: Jobs, tmp_path: Path, name: str) -> None:
    script, steps = ROOT / "examples" / name, STEPS[name]
    quick = [str(script.with_name("run.yaml")), *QUICK, "--set", f"steps={steps}"]
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for each in folders:
        each.mkdir()
    whole = jobs.start(script, *quick, folder=folders[0])
    killed = jobs.start(script, *quick, folder=folders[1])
    killed.until("checkpoint.saved", times=2)
    killed.kill(0)
    assert killed.codes()[0] in (-signal.SIGKILL, Exit.DONE)
    again = jobs.start(script, *quick, folder=folders[1])
    assert (whole.codes(), again.codes()) == ([Exit.DONE], [Exit.DONE]), whole.log()[-2000:] + again.log()[-2000:]
    assert '"resumed":true' in again.log()
    found = [contents(saved, steps) for each in folders for saved in each.glob("run-*")]
    assert found[1] == found[0]
    told = [re.findall(r"^done after .*$", each.log(), re.MULTILINE) for each in (whole, again)]
    assert told[0] == told[1] != []


@pytest.mark.parametrize("name", ["language/train.py", "image/train.py", "reinforcement/train.py"])
def test_an_example_runs_on_two_ranks_and_stops_when_asked(jobs: Jobs, tmp_path: Path, name: str) -> None:
    script = ROOT / "examples" / name
    endless = [*QUICK, "--set", "steps=1000000"]  # what ends by itself may be done before it is asked
    job = jobs.start(script, str(script.with_name("run.yaml")), *endless, folder=tmp_path, world=2)
    job.until("checkpoint.saved")
    job.kill(1, signal.SIGTERM)
    assert job.codes() == [Exit.RESUMABLE_STOP] * 2, job.log()[-3000:]


def test_the_examples_learn(jobs: Jobs, tmp_path: Path) -> None:
    """With what is told of them by default."""
    found = {}
    for name in ("language", "image", "reinforcement"):
        (tmp_path / name).mkdir()
        script = ROOT / "examples" / name / "train.py"
        codes, logs = jobs.run(script, folder=tmp_path / name)
        assert codes == [Exit.DONE], logs[0][-2000:]
        (line,) = re.findall(r"^done after .*$", logs[0], re.MULTILINE)
        found[name] = float(re.findall(r"[\d.]+", line.partition(",")[2])[0])
    assert found["language"] < 3.0  # an even guess among the bytes of English is about 4.2 nats
    assert found["image"] > 50  # a guess is right for 10 %
    assert found["reinforcement"] > 30  # a policy that knows nothing keeps the pole for about 22 steps


def commands() -> list[tuple[str, list[str]]]:
    """What the pages show of examples, and what they print."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                if "examples/" in command:
                    found.append((command, [line for line in output.splitlines() if line not in ("", "…")]))
    return found


@pytest.mark.parametrize(("command", "output"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_pages_show_runs_and_prints_it(command: str, output: list[str], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    words = shlex.split(command)
    assert words[0] == "python"
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout.splitlines()
    for line in output:
        pattern = re.escape(line).replace("…", ".*")
        assert any(re.fullmatch(pattern, each) for each in printed), f"{line!r} not in {printed}"


def test_the_pages_show_every_example() -> None:
    shown = " ".join(command for command, _ in commands())
    for name in STEPS:
        assert f"examples/{name}" in shown
