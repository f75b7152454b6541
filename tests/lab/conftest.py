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
    """A lab of clusters/lab-containers.yaml under a name of its own, certified.

    Who works on these tests names a stack that stands in MUSTER_TEST_STACK: it is used as it is, and left standing.
    """
    yield from standing("lab-containers", "MUSTER_TEST_STACK", tmp_path_factory)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of clusters/lab.yaml, as `lab` is of the other; the stack to use is named in MUSTER_TEST_VM_STACK."""
    yield from standing("lab", "MUSTER_TEST_VM_STACK", tmp_path_factory)


def standing(cluster: str, variable: str, folders: pytest.TempPathFactory) -> Iterator[Lab]:
    """The stack that the variable names, else one of the cluster that is taken down afterwards."""
    if stack := os.environ.get(variable):
        yield Lab(stack, ROOT)
        return
    stack = f"t{secrets.token_hex(3)}"
    made = Lab(stack, folders.mktemp("work"))
    try:
        made.muster("up", stack, "--spec", str(ROOT / "clusters" / f"{cluster}.yaml"))
        yield made
    finally:
        made.muster("down", stack, code=None)
