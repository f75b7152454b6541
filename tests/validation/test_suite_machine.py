"""Disks and memory."""

from recorded_host import recorded

from validation.node import machine


def test_disks_are_local_writable_and_named_once() -> None:
    found = machine.local_mounts(recorded("proc_mounts.txt"))
    assert "/" in found
    assert "/dev/shm" in found  # noqa: S108
    assert not [path for path in found if path.startswith(("/proc", "/sys", "/run/user"))]
    told = "/dev/sda1 / ext4 rw 0 0\n/dev/sda1 /srv/bind ext4 rw 0 0\n/dev/sdb1 /my\\040data xfs rw 0 0\n"
    told += "ceph:/ /scratch ceph rw 0 0\n/dev/loop0 /snap squashfs ro 0 0\n/dev/sdc1 /old ext4 ro 0 0\n"
    assert machine.local_mounts(told) == ["/", "/my data"]


def test_memory_in_gib() -> None:
    assert machine.meminfo(recorded("proc_meminfo.txt"))["MemTotal"] > 0
