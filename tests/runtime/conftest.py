"""Jobs of real processes for the tests of the runtime."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import Jobs, serving


@pytest.fixture(scope="session", autouse=True)
def dynamo() -> None:
    """Ansible, which the roles' tests import, has its own sys.intern, at which torch._dynamo's import fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "intern", getattr(sys.intern, "unpatched_implementation", sys.intern))
        importlib.import_module("torch._dynamo")


@pytest.fixture(scope="session")
def jobs() -> Iterator[Jobs]:
    """Starts scripts as ranks of a job."""
    with serving() as found:
        yield found
