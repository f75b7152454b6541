"""Waivers as the spec declares them: each covers something that is there, until an instant that is one."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sample_nodes import CATALOGUE, LAB

from policies.reading import PolicyError
from policies.waivers import Waivers, waivers_of
from spec.load import load
from spec.plan import derive
from spec.schema import Cluster

DECLARED: dict[str, Any] = {
    "id": "warm-gpu",
    "control": "gpu.temperature",
    "nodes": ("gpu-1",),
    "reason": "the rack's fan is exchanged on Monday",
    "approved_by": "ops",
    "expires": "2026-12-24T12:00:00+09:00",
}


def declared(**changed: Any) -> Waivers:
    spec = load(LAB).model_dump(by_alias=True) | {"waivers": [DECLARED | changed]}
    return waivers_of(derive(Cluster.model_validate(spec)), CATALOGUE)


def test_a_waiver_ends_at_the_instant_that_was_written_in_its_zone() -> None:
    (found,) = declared().waivers
    assert found.expires == datetime(2026, 12, 24, 3, tzinfo=UTC)
    assert found.lasts(datetime(2026, 12, 24, 2, 59, 59, tzinfo=UTC))
    assert not found.lasts(datetime(2026, 12, 24, 3, tzinfo=UTC))


def test_a_waiver_without_nodes_covers_all_of_them() -> None:
    assert declared(nodes=()).find("gpu.temperature", "gpu-0")
    assert declared().find("gpu.temperature", "gpu-1")
    assert declared().find("gpu.temperature", "gpu-0") is None
    assert declared().find("gpu.count", "gpu-1") is None


@pytest.mark.parametrize(
    "wrong",
    [{"control": "gpu.temprature"}, {"nodes": ("gpu-9",)}, {"expires": "2026-13-45T12:00:00Z"}],
    ids=str,
)
def test_a_waiver_that_covers_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((PolicyError, ValueError), match=r"."):
        declared(**wrong)


@pytest.mark.parametrize("expires", ["2026-12-24", "2026-12-24T12:00:00", "tomorrow"])
def test_a_day_or_a_time_without_zone_is_no_instant(expires: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        declared(expires=expires)
