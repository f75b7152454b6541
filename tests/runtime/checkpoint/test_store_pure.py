"""Formats, boxes, retention, triggers and keys: pure functions over any input."""

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import save

from runtime.checkpoint.boxes import tiles
from runtime.checkpoint.crypt import Key, KeyUnusableError, key
from runtime.checkpoint.format import (
    FORMAT,
    CheckpointError,
    Manifest,
    NewerFormatError,
    TornError,
    again_of,
    pack,
    step_name,
    step_of,
    unpack,
)
from runtime.checkpoint.retention import Retention, Stored, expendable
from runtime.checkpoint.tier import Tier
from runtime.checkpoint.triggers import Progress, Triggers, between_failures_s, due, young_s

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def cut(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """A shape, and boxes that make it up, by cutting again and again."""
    shape = draw(st.lists(st.integers(1, 5), max_size=3).map(tuple))
    boxes = [(tuple(0 for _ in shape), shape)]
    for _ in range(draw(st.integers(0, 6)) if shape else 0):
        offset, extent = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, extent[axis]))
        low = tuple(at if i == axis else e for i, e in enumerate(extent))
        high = tuple(e - at if i == axis else e for i, e in enumerate(extent))
        boxes += [(offset, low), (tuple(o + at if i == axis else o for i, o in enumerate(offset)), high)]
    return shape, draw(st.permutations(boxes))


@given(cut())
def test_an_array_that_was_cut_up_is_made_up_by_its_pieces(made) -> None:
    shape, boxes = made
    assert tiles(shape, boxes)


@given(shapes, st.data())
def test_boxes_make_an_array_up_exactly_if_each_element_is_in_one(shape, data) -> None:
    def box():
        offset = tuple(data.draw(st.integers(0, size)) for size in shape)
        return offset, tuple(data.draw(st.integers(0, size - at)) for at, size in zip(offset, shape, strict=True))

    boxes = [box() for _ in range(data.draw(st.integers(0, 4)))]
    counts = [
        sum(all(o <= x < o + e for x, o, e in zip(spot, *each, strict=True)) for each in boxes)
        for spot in itertools.product(*map(range, shape))
    ]
    assert tiles(shape, boxes) == all(count == 1 for count in counts)


@given(st.integers(0, 10**12 - 1), st.integers(0, 10**6 - 1))
def test_a_step_is_read_from_its_folders_name(step: int, again: int) -> None:
    assert (step_of(step_name(step, again)), again_of(step_name(step, again))) == (step, again)


@given(st.text())
def test_no_other_name_is_a_step(name: str) -> None:
    found = step_of(name)
    assert found is None or name.startswith(f"step-{found:012d}")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    with Tier(tmp_path_factory.mktemp("sample")) as tier:
        return save(tier, 5)


def test_a_document_comes_back(manifest: Manifest) -> None:
    assert unpack(pack(manifest, "manifest"), Manifest, "manifest", "here") == manifest


def test_a_newer_format_is_not_called_damaged(manifest: Manifest) -> None:
    head, _, body = pack(manifest, "manifest").partition(b"\n")
    newer = json.dumps({**json.loads(head), "format": FORMAT + 1, "unheard": "of"}).encode() + b"\n" + body
    with pytest.raises(NewerFormatError, match=f"has format {FORMAT + 1}"):
        unpack(newer, Manifest, "manifest", "here")


@given(data=st.data())
def test_any_change_to_a_document_is_noticed(manifest: Manifest, data: st.DataObject) -> None:
    raw = pack(manifest, "manifest")
    at = data.draw(st.integers(0, len(raw) - 1))
    new = data.draw(st.binary(max_size=4))
    changed = raw[:at] + new + raw[at + data.draw(st.integers(0, 4)) :]
    try:
        assert unpack(changed, Manifest, "manifest", "here") == manifest
    except (TornError, NewerFormatError):
        return
    except CheckpointError as told:
        message = str(told)
    else:
        return
    assert "is sealed with key" in message


@given(st.binary(max_size=300))
def test_no_bytes_end_in_another_error(raw: bytes) -> None:
    with pytest.raises(CheckpointError):
        unpack(raw, Manifest, "manifest", "here")


def test_a_manifest_that_contradicts_itself_is_refused(manifest: Manifest) -> None:
    whole = json.loads(manifest.model_dump_json())

    def piece(**changes):
        changed = json.loads(json.dumps(whole))
        changed["parts"][0]["pieces"][0].update(changes)
        return changed

    for changed in (
        {**whole, "step": 6},
        {**whole, "world": 1},
        {**whole, "folder": "../step-000000000005"},
        {**whole, "parts": whole["parts"][:1]},
        {**whole, "parts": whole["parts"][::-1]},
        {**whole, "parts": [whole["parts"][0], whole["parts"][0]]},
        {**whole, "unknown": 1},
        piece(file="../../etc/passwd"),
        piece(file="rank-00001.00000000.data"),
        piece(at=-1),
        piece(at=10**9),
        piece(size=1),
        piece(dtype="object"),
        piece(dtype="int8"),
        piece(shape=[6, 10**15]),
        piece(offset=[1, 0]),
        piece(hash="0"),
        piece(name=""),
    ):
        body = json.dumps(changed).encode()
        from blake3 import blake3

        head = {"muster": "manifest", "format": 1, "size": len(body), "hash": blake3(body).hexdigest()}
        with pytest.raises(TornError, match="contradicts itself"):
            unpack(json.dumps(head).encode() + b"\n" + body, Manifest, "manifest", "here")


stored = st.lists(
    st.builds(
        Stored,
        step=st.integers(0, 60),
        metric=st.none() | st.floats(allow_nan=True),
        verified=st.booleans(),
    ),
    unique_by=lambda each: each.step,
)
retentions = st.builds(
    Retention,
    keep_last=st.integers(1, 4),
    keep_best=st.integers(0, 3),
    best=st.sampled_from(["lowest", "highest"]),
    keep_every_steps=st.none() | st.integers(1, 20),
)


@given(retentions, stored)
def test_nothing_is_removed_for_a_checkpoint_that_is_not_proven(retention: Retention, had: list[Stored]) -> None:
    gone = set(expendable(retention, had))
    verified = [each.step for each in had if each.verified]
    assert not gone or (verified and max(gone) < max(verified))
    assert set(sorted(verified)[-retention.keep_last :]).isdisjoint(gone)
    assert not retention.keep_every_steps or all(step % retention.keep_every_steps for step in gone)
    left = [each for each in had if each.step not in gone]
    assert expendable(retention, left) == ()


def test_the_best_the_last_and_every_nth_stay() -> None:
    had = [Stored(step=step, metric=abs(step - 35), verified=True) for step in range(10, 110, 10)]
    assert expendable(Retention(keep_last=2, keep_best=2, keep_every_steps=50), had) == (10, 20, 60, 70, 80)
    worse = Retention(keep_last=1, keep_best=1, best="highest")
    assert expendable(worse, had) == tuple(range(10, 100, 10))
    had.append(Stored(step=110, verified=False))
    assert 90 not in expendable(Retention(keep_last=2), had)


def at(**changes: float) -> Progress:
    return Progress(**{"step": 100, "now_s": 1000.0, "saved_step": 90, "saved_s": 900.0, **changes})  # type: ignore[arg-type]


def test_a_save_is_due_by_steps_by_time_or_both() -> None:
    assert due(Triggers(every_steps=50), at()) == "steps"
    assert due(Triggers(every_steps=60), at()) == ""
    assert due(Triggers(every_steps=7), at(step=93, saved_step=90)) == "steps"
    assert due(Triggers(every_s=100), at()) == "time"
    assert due(Triggers(every_s=101), at()) == ""
    assert due(Triggers(every_s=100, every_steps=60), at()) == "time"
    assert due(Triggers(), at()) == ""
    assert due(Triggers(every_steps=1, every_s=1), at(step=90)) == ""


def test_youngs_interval_is_the_published_one() -> None:
    """M = 1.8 h and C = 20 s give 8.5 min; C = 2 s gives 2.7 min."""
    assert round(young_s(20, 1.8 * 3600) / 60, 1) == 8.5
    assert round(young_s(2, 1.8 * 3600) / 60, 1) == 2.7
    triggers = Triggers(by_failures=True, between_failures_s=1.8 * 3600)
    assert due(triggers, at(stall_s=20, now_s=900 + 508)) == ""
    assert due(triggers, at(stall_s=20, now_s=900 + 510)) == "failures"
    assert due(triggers, at(stall_s=20, now_s=900 + 510, save_s=600)) == ""
    assert due(triggers, at(now_s=9e9)) == ""


@given(st.floats(1e-3, 1e5), st.floats(1, 1e7))
def test_youngs_interval_is_the_cheapest_where_a_save_is_short(stall_s: float, between_s: float) -> None:
    def cost(interval_s: float) -> float:
        return stall_s / interval_s + interval_s / (2 * between_s)

    best = young_s(stall_s, between_s)
    assert 0 < best <= between_s
    if stall_s < between_s / 2:
        assert cost(best) <= min(cost(best * 1.1), cost(best / 1.1)) * (1 + 1e-9)


def test_failures_that_were_seen_outweigh_the_expectation() -> None:
    assert between_failures_s(3600, 0, 0) == 3600
    assert math.isclose(between_failures_s(3600, 36000, 99), 396)


def test_keys_are_found_by_their_uri(tmp_path: Path) -> None:
    secret = bytes(range(32))
    file = tmp_path / "key"
    file.write_text(secret.hex() + "\n")
    file.chmod(0o600)
    assert key(f"file:{file}").id == Key(secret).id
    import base64

    assert key("env:K", {"K": base64.b64encode(secret).decode()}).id == Key(secret).id


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("env:NONE", "not set"),
        ("env:SHORT", "is not 32 bytes"),
        ("file:/nonexistent", "No such file"),
        ("awskms:alias/x", "awskms: is no kind of key"),
        ("00112233445566778899aabbccddeeff", "this: is no kind of key"),
        ("", "is no kind of key"),
    ],
)
def test_a_key_that_cannot_be_had_is_told_clearly_and_never_shown(uri: str, told: str) -> None:
    with pytest.raises(KeyUnusableError, match=told) as error:
        key(uri, {"SHORT": "5ec2e7"})
    assert "5ec2e7" not in str(error.value)
    assert "00112233" not in str(error.value)


def test_a_key_file_that_others_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(bytes(32).hex())
    file.chmod(0o644)
    with pytest.raises(KeyUnusableError, match="chmod 600"):
        key(f"file:{file}")
    assert bytes(32).hex() not in repr(Key(bytes(32)))


@given(st.binary(max_size=200), st.integers(0, 2**60), st.data())
def test_sealed_bytes_open_only_as_they_were_and_where_they_were(plain: bytes, place: int, data: st.DataObject) -> None:
    sealer = Key(bytes(32)).file(bytes(16))
    sealed = sealer.seal(plain, place)
    assert sealer.unseal(sealed, place) == plain
    spot = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:spot] + bytes([sealed[spot] ^ 1]) + sealed[spot + 1 :]
    for other, at_place in ((changed, place), (sealed, place + 1), (sealed[:-1], place), (b"", place)):
        with pytest.raises(TornError):
            sealer.unseal(other, at_place)
    with pytest.raises(TornError):
        Key(bytes(32)).file(bytes(15) + b"1").unseal(sealed, place)
