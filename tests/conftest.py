"""What all tests have in common."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""How long an example takes says how busy the machine is, not whether the promise holds."""

NEED_A_GPU = pytest.StashKey[set[str]]()
"""The ids of the tests that are marked `gpu`."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs what needs a lab after everything else: who broke a unit test learns it in minutes."""
    items.sort(key=lambda item: any(item.get_closest_marker(name) for name in ("lab", "vm")))
    config.stash[NEED_A_GPU] = {item.nodeid for item in items if item.get_closest_marker("gpu")}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    """Ends with what was not tested for want of a GPU: a green run elsewhere says nothing about real ones."""
    yield
    marked = config.stash.get(NEED_A_GPU, set())
    skipped = {
        each.nodeid: each.longrepr for each in terminalreporter.stats.get("skipped", []) if each.nodeid in marked
    }
    if skipped:
        terminalreporter.section("not tested without an NVIDIA GPU")
        tests = "1 test needs a GPU and was" if len(skipped) == 1 else f"{len(skipped)} tests need a GPU and were"
        terminalreporter.line(f"{tests} skipped: python -m pytest -m gpu on a machine that has one runs them")
        for name, (_, _, reason) in sorted(skipped.items()):
            terminalreporter.line(f"  {name}: {reason.removeprefix('Skipped: ')}")
