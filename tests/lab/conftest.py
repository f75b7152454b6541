"""One lab for all tests in this folder: stood up by the command that people type, taken down by it at the end."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from standing_lab import ROOT, Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the lab, and root for it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(2400))
            item.add_marker(pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts need root"))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of clusters/lab.yaml under a name of its own, certified.

    Who works on these tests names a stack that stands in MUSTER_TEST_STACK: it is used as it is, and left standing.
    """
    if standing := os.environ.get("MUSTER_TEST_STACK"):
        yield Lab(standing, ROOT)
        return
    stack = f"t{secrets.token_hex(3)}"
    folder = tmp_path_factory.mktemp("work")
    made = Lab(stack, folder)
    try:
        made.muster("up", stack, "--spec", str(ROOT / "clusters" / "lab.yaml"))
        yield made
    finally:
        made.muster("down", stack, code=None)
