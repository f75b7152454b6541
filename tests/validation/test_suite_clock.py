"""The clock as chrony tells it."""

import pytest
from recorded_host import Answers, recorded

from validation.node import clock
from validation.node.measure import Unmeasurable


def test_a_clock_that_follows_a_server() -> None:
    host = Answers({"tracking": "chronyc_tracking.txt", "sources": "chronyc_sources.txt"})
    assert clock.synchronised(host) is True
    assert clock.offset_ms(host) == 0.00218
    assert clock.source(host) == "10.77.1.11"
    assert clock.stratum(host) == 11


def test_a_clock_that_follows_nothing_has_no_offset_rather_than_none() -> None:
    host = Answers({"tracking": "chronyc_tracking_unsynchronised.txt", "sources": "chronyc_sources_unreached.txt"})
    assert clock.synchronised(host) is False
    for fact in (clock.offset_ms, clock.source, clock.stratum):
        with pytest.raises(Unmeasurable):
            fact(host)
    with pytest.raises(Unmeasurable):
        clock.selected(recorded("chronyc_sources_unreached.txt"))


def test_the_time_server_follows_itself() -> None:
    host = Answers({"tracking": "chronyc_tracking_local.txt"})
    assert clock.source(host) == "local"
    assert clock.synchronised(host) is True


@pytest.mark.parametrize("told", ["", "506 Cannot talk to daemon", "1,2,3", "a," * 20])
def test_what_chrony_never_prints_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match="fields instead of 14"):
        clock.read_tracking(told)
