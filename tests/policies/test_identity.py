"""What hardware a node is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import examination, identity

from policies.identity import IdentityError, identify, identities


def told(**changed: Any) -> dict[str, Any]:
    return identity("gpu-0") | changed


def test_the_order_and_the_spelling_of_devices_do_not_matter() -> None:
    base = identify(examination(identity=told()))
    other = told(gpus=[each.lower() for each in reversed(told()["gpus"])], macs=[told()["macs"][0].upper()])
    assert identify(examination(identity=other)).digest == base.digest


@pytest.mark.parametrize(
    "changed",
    [
        {"machine_id": "1" * 31 + "2"},
        {"macs": ["02:aa:aa:aa:aa:01"]},
        {"gpus": [*identity("gpu-0")["gpus"][:7], "GPU-ffffffff-0000-4000-8000-000000000000"]},
        {"hcas": ["0x0c42a10300aabbcc"]},
        {"system_uuid": "4c4c4544-0042-3510-8052-b4c04f4e4d32"},
        {"system_serial": "J40QX13"},
    ],
)
def test_exchanged_hardware_is_another_identity(changed: dict[str, Any]) -> None:
    was, now = identify(examination(identity=told())), identify(examination(identity=told(**changed)))
    assert was.digest != now.digest
    assert len(was.differs(now)) == 1
    assert was.differs(now)[0].startswith(next(iter(changed)))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({}, "told no identity"),
        (told(machine_id=""), "no machine-id"),
        (told(machine_id="uninitialized"), "no machine-id"),
        (told(machine_id="0" * 32), "no machine-id"),
        (told(macs=[]), "no network port"),
        (told(macs=["00:00:00:00:00:00"]), "no MAC address"),
        (told(gpus=None), "could not read its gpus"),
        (told(gpus=["GPU-11111111-2222"] * 2), "same number"),
        (told(gpus=["N/A"]), "no device UUID"),
        (told(gpus="GPU-1"), "not a list"),
        (told(gpus=[7]), "no text"),
        (told(hcas=["0000:0000:0000:0000"]), "no GUID"),
        (told(macs=["02:00:00:00:00:01"] * 300), "at most 256"),
        (told(system_serial={"a": 1}), "short text"),
        (told(firmware="1.2"), "unknown part of identity: firmware"),
    ],
)
def test_what_cannot_tell_nodes_apart_is_no_identity(broken: dict[str, Any], says: str) -> None:
    with pytest.raises(IdentityError, match=says):
        identify(examination(identity=broken))


@pytest.mark.parametrize("placeholder", ["To Be Filled By O.E.M.", "Not Specified", "  ", "Default string"])
def test_a_vendors_placeholder_is_no_serial_number(placeholder: str) -> None:
    assert identify(examination(identity=told(system_serial=placeholder))).system_serial is None


@pytest.mark.parametrize("uuid", ["0" * 8 + "-0000-0000-0000-" + "0" * 12, "F" * 32, "not-a-uuid"])
def test_a_blank_system_uuid_is_none(uuid: str) -> None:
    assert identify(examination(identity=told(system_uuid=uuid))).system_uuid is None


@given(
    st.dictionaries(
        st.sampled_from(["machine_id", "macs", "gpus", "hcas", "system_uuid", "other"]),
        st.none() | st.text() | st.integers() | st.lists(st.text() | st.none() | st.integers(), max_size=5),
    )
)
@settings(deadline=None)
def test_whatever_a_node_says_there_is_an_identity_or_an_identity_error(parts: dict[str, Any]) -> None:
    try:
        found = identify(examination().model_copy(update={"identity": parts}))
    except IdentityError:
        return
    assert len(found.digest) == 64
    assert found.macs


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"complete": False, "unreachable": "timed out"}, "timed out"),
        ({"complete": False, "fault": "no end within 60 s"}, "no end within 60 s"),
        ({"complete": False}, "broke off"),
        ({"identity": {}}, "told no identity"),
    ],
)
def test_a_node_whose_identity_is_not_known_has_a_reason_instead(changed: dict[str, Any], says: str) -> None:
    found = identities({"gpu-0": examination(), "gpu-1": examination("gpu-1", **changed)})
    assert found["gpu-0"] == identify(examination()).digest
    assert isinstance(found["gpu-1"], IdentityError)
    assert says in str(found["gpu-1"])
