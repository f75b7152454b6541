"""Jobs of real processes for the tests of the runtime."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import Jobs, serving


@pytest.fixture(scope="session")
def jobs() -> Iterator[Jobs]:
    """Starts scripts as ranks of a job."""
    with serving() as found:
        yield found
