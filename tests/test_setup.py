"""`./setup` brings a machine to where everything runs, however often it was cut off before."""

import contextlib
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_set_up_that_is_killed_at_random_instants_is_taken_up_again(tmp_path: Path) -> None:
    checkout = tmp_path / "muster"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    own = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "VIRTUAL_ENV"))}
    environment = own | {"MUSTER_HOME": str(tmp_path / "home"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    chance = random.SystemRandom()
    for _ in range(8):
        run = subprocess.Popen(
            ["./setup"], cwd=checkout, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(chance.uniform(0, 8))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    subprocess.run(["./setup"], cwd=checkout, env=environment, check=True, timeout=900)
    for command in ("muster", "pytest", "ansible-playbook", "uv"):
        subprocess.run([checkout / ".venv" / "bin" / command, "--version"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([checkout / ".venv/bin/muster", "plan", "clusters/lab.yaml"], cwd=checkout, check=True)
