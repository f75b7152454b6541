"""Who may log in and become root."""

import json
from pathlib import Path

import pytest
from recorded_host import recorded

from validation.node import users
from validation.node.measure import Unmeasurable


def test_sshd_tells_its_settings() -> None:
    found = users.read_settings(recorded("sshd_T.txt"))
    assert found["permitrootlogin"] == "no"
    assert found["pubkeyauthentication"] == "yes"
    with pytest.raises(Unmeasurable):
        users.read_settings("")


def test_who_becomes_root_by_sudo() -> None:
    rules = json.loads(recorded("cvtsudoers.json"))
    assert users.sudoers(rules, {"sudo": ["alice", "bob"]}) == {"root", "muster", "alice", "bob"}


def test_passwords_are_told_apart() -> None:
    shadow = "root:*:19000:0:99999:7:::\na:$y$j9T$x:19000:0:99999:7:::\nb::19000:0:99999:7:::\nc:!$y$x:19000::::::\n"
    shadow += "d:$y$x:19000:0:99999:7::100:\n"
    assert users.passwords(shadow, today=200) == {
        "root": "locked",
        "a": "set",
        "b": "empty",
        "c": "locked",
        "d": "expired",
    }


def test_a_key_file_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    assert not users.has_key(tmp_path)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "authorized_keys").write_text("# none yet\n\n")
    assert not users.has_key(tmp_path)
    (tmp_path / ".ssh" / "authorized_keys").write_text("ssh-ed25519 AAAA someone\n")
    assert users.has_key(tmp_path)
