"""What all tests have in common."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""How long an example takes says how busy the machine is, not whether the promise holds."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs what needs a lab after everything else: who broke a unit test learns it in minutes."""
    items.sort(key=lambda item: any(item.get_closest_marker(name) for name in ("lab", "vm")))
