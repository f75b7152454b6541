"""A plan that every test of the stack may use, and state folders apart from the user's."""

from pathlib import Path

import pytest

from spec.load import load
from spec.plan import ClusterPlan, derive
from stacks.lab.model import Machine, machine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State in a temporary folder; caches stay where they are."""
    monkeypatch.delenv("MUSTER_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="session")
def plan() -> ClusterPlan:
    """The lab's plan."""
    return derive(load(ROOT / "clusters" / "lab.yaml"))


@pytest.fixture
def gpu_machine() -> Machine:
    """A GPU node of the lab that has containers only."""
    node = derive(load(ROOT / "clusters" / "lab-containers.yaml")).node("gpu-0")
    return machine("test", node, "0" * 16, "1" * 16)
