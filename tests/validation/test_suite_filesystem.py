"""The parallel filesystem as its monitors, and the node's mounts, tell it."""

from pathlib import Path

import pytest
from recorded_host import Answers

from validation.node import filesystem
from validation.node.host import Host
from validation.node.measure import Unmeasurable

MONITORS = {"filesystem.monitors": 3}


def test_a_healthy_filesystem() -> None:
    host = Answers({"status": "ceph_status_healthy.json"}, MONITORS)
    assert (filesystem.health(host), filesystem.health_checks(host)) == ("HEALTH_OK", [])
    counts = [fact(host) for fact in (filesystem.quorum, filesystem.metadata_active, filesystem.metadata_standby)]
    assert counts == [3, 1, 1]
    assert filesystem.osds_down(host) == 0


def test_a_filesystem_that_lost_its_standby() -> None:
    host = Answers({"status": "ceph_status_without_standby.json"}, MONITORS)
    assert filesystem.health_checks(host) == ["MDS_INSUFFICIENT_STANDBY"]
    assert (filesystem.metadata_active(host), filesystem.metadata_standby(host)) == (1, 0)


def test_a_node_that_is_no_storage_node_does_not_ask_the_monitors() -> None:
    with pytest.raises(Unmeasurable):
        filesystem.health(Answers({}))


def test_a_folder_of_the_nodes_own_disk_is_no_parallel_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("gpu-0", {"filesystem.mount": "/scratch"})
    for line, is_mounted in (
        ("ceph-fuse /scratch fuse.ceph-fuse rw 0 0", True),
        ("10.0.0.1:/ /scratch ceph rw 0 0", True),
        ("/dev/sda1 /scratch ext4 rw 0 0", False),
        ("ceph-fuse /scratch fuse.ceph-fuse rw 0 0\ntmpfs /scratch tmpfs rw 0 0", False),
        ("/dev/sda1 /scratch ext4 rw 0 0\n10.0.0.1:/ /scratch ceph rw 0 0", True),
        ("ceph-fuse /scratch2 fuse.ceph-fuse rw 0 0", False),
        ("", False),
    ):
        monkeypatch.setattr(Host, "read", lambda _host, _path, line=line: line)
        assert filesystem.mounted(host) is is_mounted, line


def test_a_sample_is_written_and_nothing_is_left(tmp_path: Path) -> None:
    assert filesystem.write_and_read(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file"):
        filesystem.write_and_read(tmp_path / "gone")
