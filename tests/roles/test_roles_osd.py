"""No store of an OSD is given up that may hold the only copies."""

from typing import Any

import pytest
from plan_inventories import ROLES, evaluate, read

UUID = "4d0ea0c4-2f6a-5d3b-9a51-0d7c0f5d5a11"
LABEL = """{"/dev/sdb": {"osd_uuid": "%s", "size": 4294967296, "description": "main", "whoami": "0"%s}}"""
UNFINISHED, WHOLE = LABEL % (UUID, ""), LABEL % (UUID, ', "mkfs_done": "yes", "ready": "ready"')


def taken(signatures: str, label: str | None) -> bool:
    """Whether a device that carries this is taken. No label: it was not asked for, as there is no signature."""
    asserts = [task for task in read(ROLES / "ceph/tasks/osd-device-check.yml") if "ansible.builtin.assert" in task]
    assert asserts
    known: dict[str, Any] = {
        "ceph_osd_uuid": UUID,
        "ceph_osd_signatures": {"stdout": signatures},
        "ceph_osd_label": {"skipped": True} if label is None else {"stdout": label},
    }
    return all(evaluate(f"({task['ansible.builtin.assert']['that']}) | bool", known) for task in asserts)


@pytest.mark.parametrize(
    ("signatures", "label", "may"),
    [
        ("", None, True),
        ("ceph_bluestore", UNFINISHED, True),
        ("ceph_bluestore", WHOLE, False),
        ("ceph_bluestore", UNFINISHED.replace(UUID, UUID[::-1]), False),
        ("ext4", "", False),
        ("gpt\nPMBR", "", False),
    ],
)
def test_only_an_empty_device_or_an_unfinished_store_of_this_osd_is_taken(
    signatures: str, label: str | None, may: bool
) -> None:
    assert taken(signatures, label) is may


def test_the_device_is_looked_at_before_anything_is_given_up() -> None:
    names = [task["name"] for task in read(ROLES / "ceph/tasks/osd-make.yml")]
    assert names.index("Look at its device") < names.index("Give up the store that it had")
