"""What people see of long work."""

import pytest

from muster.console import SILENCE_S, progress


def test_a_log_keeps_what_is_worth_it_and_shows_that_long_silent_work_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with progress("working", clock=lambda: now) as show:
        show("passing at once", False)
        show("kept", True)
        now = SILENCE_S - 1.0
        show("passing soon", False)
        now = SILENCE_S + 1.0
        show("passing late", False)
        show("passing right after it", False)
    assert capsys.readouterr().err.split("\n") == ["working", "kept", "passing late", ""]
