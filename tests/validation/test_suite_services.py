"""Units, limits and settings."""

import resource
from pathlib import Path

import pytest
from recorded_host import Answers, recorded

from validation.node import services


def test_units_as_systemd_lists_them() -> None:
    host = Answers({"list-units": "systemctl_units.json"})
    assert services.active(host)["ssh.service"] == "active"
    assert all(name.endswith(".service") for name in services.active(host))
    assert services.failed(host) == []


def test_limits() -> None:
    told = recorded("proc_limits.txt")
    assert services.hard_limit(told, "Max open files") == 20000
    assert services.hard_limit(told, "Max cpu time") == resource.RLIM_INFINITY
    assert services.least([resource.RLIM_INFINITY, 8388608]) == 8388608
    assert services.least([resource.RLIM_INFINITY]) == "unlimited"
    with pytest.raises(LookupError):
        services.hard_limit(told, "Max happiness")


def test_a_settings_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "range").write_text("32768\t60999\n")
    (tmp_path / "secret").write_text("x")
    assert services.setting(tmp_path / "proc", "net.range") == "32768 60999"
    assert services.setting(tmp_path / "proc", "net.missing") is None
    for name in ("//.secret", "...secret", "/secret", "//./.secret"):
        assert services.setting(tmp_path / "proc", name) is None
