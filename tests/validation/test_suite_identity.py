"""Which hardware a node says it is."""

from pathlib import Path

from validation.node.identity import macs


def test_identity_names_hardware_only(tmp_path: Path) -> None:
    for name in ("eno1", "eno2", "eno1v0"):
        (tmp_path / name / "device").mkdir(parents=True)
    (tmp_path / "eno1v0" / "device" / "physfn").mkdir()
    (tmp_path / "bond0" / "bonding").mkdir(parents=True)
    links = {
        "lo": {"link_type": "loopback", "address": "00:00:00:00:00:00"},
        "eno1": {"link_type": "ether", "address": "02:00:00:00:00:01"},
        "eno2": {"link_type": "ether", "address": "02:00:00:00:00:01", "permaddr": "02:00:00:00:00:02"},
        "eno1v0": {"link_type": "ether", "address": "02:00:00:00:00:03"},
        "bond0": {"link_type": "ether", "address": "02:00:00:00:00:01"},
        "docker0": {"link_type": "ether", "address": "02:00:00:00:00:05"},
        "rail0": {"link_type": "ether", "address": "02:00:00:00:00:06", "link_index": 7},
        "stor0.20": {"link_type": "ether", "address": "02:00:00:00:00:01", "link": "bond0"},
    }
    declared = {"bond0", "rail0", "stor0.20"}
    assert macs(tmp_path, links, declared) == ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:06"]
