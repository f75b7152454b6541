"""A checkpoint is whole or it is not there."""

import mmap
import os
import threading
from pathlib import Path

import pytest
from store_samples import WORLD, blobs, found, place, save, write

from runtime.checkpoint.crypt import Key, KeyUnusableError
from runtime.checkpoint.format import CheckpointError, NewerFormatError, TornError
from runtime.checkpoint.storage import Storage
from runtime.checkpoint.tier import Blob, NoCheckpointError, PartsMissingError, Tier
from runtime.checkpoint.writing import CHUNK_BYTES, IN_PLACE_BYTES
from runtime.place import Place


@pytest.fixture(params=[None, Key(bytes(range(32)))], ids=["plain", "sealed"])
def tier(request: pytest.FixtureRequest, tmp_path: Path):
    with Tier(tmp_path / "checkpoints", request.param, stall_s=30) as made:
        yield made


def reopened(tier: Tier, key: Key | None) -> Tier:
    return Tier(tier.folder, key, stall_s=30)


def test_what_was_saved_is_what_is_read(tier: Tier) -> None:
    for step in (1, 20, 3):
        save(tier, step)
    assert tier.steps() == (1, 3, 20)
    assert [found(tier, step) for step in tier.steps()] == [1, 3, 20]
    assert (tier.folder / "latest").read_text() == "step-000000000020\n"


def test_pieces_larger_than_a_chunk_and_of_odd_sizes_come_back(tier: Tier) -> None:
    sizes = [0, 1, 63, 64, 4095, 300_001, CHUNK_BYTES - 16, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7]
    data = {f"p{size}": os.urandom(size) for size in sizes}
    alone = Place()
    tier.begin(1, alone).write((Blob(n, "uint8", (len(d),), (0,), (len(d),), d) for n, d in data.items()), {})
    manifest = tier.commit(1, alone, 1)
    assert tier.verify(1) == manifest
    for piece in manifest.pieces:
        assert bytes(tier.read(manifest, piece)) == data[piece.name]
        into = bytearray(piece.plain_bytes)
        tier.read(manifest, piece, memoryview(into))
        assert into == data[piece.name]


@pytest.mark.parametrize("direct", [False, True])
def test_lasting_bytes_on_pages_come_back_among_others_of_any_size(tier: Tier, direct: bool) -> None:
    sizes = [100, IN_PLACE_BYTES, 1, IN_PLACE_BYTES - 1, IN_PLACE_BYTES + 1, 5000, 2 * CHUNK_BYTES + 4097, 0, 7 * 4096]
    data = []
    for size in sizes:
        page = mmap.mmap(-1, size + 1)
        page[:size] = os.urandom(size)
        data.append(memoryview(page)[:size])
    beside = memoryview(bytearray(os.urandom(IN_PLACE_BYTES + 1)))[1:]  # lasting, and on no page
    data.append(beside)
    blobs = [Blob(f"p{at}", "uint8", (len(d),), (0,), (len(d),), d, lasting=True) for at, d in enumerate(data)]
    tier.begin(1, Place()).write(blobs, {})
    manifest = tier.commit(1, Place(), 1)
    assert tier.verify(1) == manifest
    into = [memoryview(mmap.mmap(-1, max(1, len(d))))[: len(d)] for d in data]
    tier.read_all(manifest, zip(manifest.pieces, into, strict=True), direct=direct)
    assert [bytes(each) for each in into] == [bytes(each) for each in data]


def test_a_buffer_may_change_once_the_next_is_asked_for(tier: Tier) -> None:
    shared = bytearray(1 << 20)

    def reusing():
        for value in range(20):
            shared[:] = bytes([value]) * len(shared)
            yield Blob(f"b{value}", "uint8", (len(shared),), (0,), (len(shared),), shared)

    tier.begin(1, Place()).write(reusing(), {})
    manifest = tier.commit(1, Place(), 1)
    for value, piece in enumerate(manifest.pieces):
        assert set(tier.read(manifest, piece)) == {value}


def test_a_missing_rank_commits_nothing_and_is_named(tier: Tier) -> None:
    save(tier, 1)
    tier.begin(2, place(0)).write(blobs(2, 0), {})
    with pytest.raises(PartsMissingError, match=r"no part of 1 of 2 ranks \(1\)"):
        tier.commit(2, place(0), 0.05)
    assert tier.steps() == (1,)
    assert found(tier, 1) == 1


def test_the_leader_waits_for_a_rank_that_is_late(tier: Tier) -> None:
    tier.begin(2, place(0)).write(blobs(2, 0), {"seed": 2})
    late = threading.Timer(0.2, lambda: tier.begin(2, place(1)).write(blobs(2, 1), {"seed": 3}))
    late.start()
    tier.commit(2, place(0), 30, values={"content": 2})
    late.join()
    assert found(tier, 2) == 2


def test_parts_of_another_attempt_or_save_are_never_taken(tier: Tier) -> None:
    tier.begin(2, place(1, "a.0")).write(blobs(2, 1), {})
    tier.begin(2, place(1, "a.1"), turn=1).write(blobs(2, 1), {})
    tier.begin(2, place(0, "a.1"), turn=2).write(blobs(2, 0), {})
    with pytest.raises(PartsMissingError):
        tier.commit(2, place(0, "a.1"), 0.05, turn=2)


def test_a_part_that_is_not_of_its_rank_is_not_committed(tier: Tier) -> None:
    for rank in range(WORLD):
        tier.begin(2, place(rank)).write(blobs(2, rank), {})
    (beside,) = tier.folder.glob(".step-*")
    (beside / "rank-00000.part").write_bytes((beside / "rank-00001.part").read_bytes())
    with pytest.raises(TornError, match="is of rank 1"):
        tier.commit(2, place(0), 1)


def test_a_part_tried_again_replaces_the_earlier_try(tier: Tier) -> None:
    write(tier, 7, content=5)
    save(tier, 7)
    assert found(tier, 7) == 7
    assert len(list((tier.folder / "step-000000000007").iterdir())) == WORLD + 1


def test_a_step_saved_again_is_the_newer_one_and_the_older_stays_until_removed(tier: Tier) -> None:
    save(tier, 7)
    before = sorted(path.read_bytes() for path in (tier.folder / "step-000000000007").iterdir())
    save(tier, 7, turn=1, content=8)
    assert found(tier, 7) == 8
    assert sorted(path.read_bytes() for path in (tier.folder / "step-000000000007").iterdir()) == before
    tier.quarantine(7, "for the test")
    assert found(tier, 7) == 7
    save(tier, 7, turn=2, content=9)
    tier.remove(7)
    assert tier.steps() == ()


def test_arrays_with_a_gap_or_an_overlap_are_not_committed(tier: Tier) -> None:
    for boxes in ([(0, 2)], [(0, 2), (3, 1)], [(0, 3), (2, 2)], [(0, 2), (0, 2)]):
        parts = [Blob("w", "uint8", (4,), (at,), (long,), bytes(long)) for at, long in boxes]
        tier.begin(1, Place(), 0).write(parts, {})
        with pytest.raises(CheckpointError, match="not hold every element"):
            tier.commit(1, Place(), 1)
    assert tier.steps() == ()


def test_a_node_commits_its_ranks_alone(tier: Tier) -> None:
    tier.begin(3, place(1)).write(blobs(3, 1), {})
    manifest = tier.commit(3, place(1), 1, ranks=[1], whole=False)
    assert [part.rank for part in tier.verify(3).parts] == [1]
    assert not manifest.whole


@pytest.mark.parametrize(
    "blob",
    [
        Blob("w", "uint8", (4,), (2,), (3,), bytes(3)),
        Blob("w", "object", (4,), (0,), (4,), bytes(4)),
        Blob("w", "uint8", (4,), (0, 0), (4,), bytes(4)),
        Blob("w", "float32", (4,), (0,), (4,), bytes(4)),
        Blob("w", "uint8", (2, 2), (0, 0), (2, 2), memoryview(bytes(8))[::2]),
    ],
)
def test_a_blob_that_is_no_box_of_its_array_leaves_no_part(tier: Tier, blob: Blob) -> None:
    with pytest.raises(CheckpointError):
        tier.begin(1, Place()).write([blob], {})
    with pytest.raises(PartsMissingError):
        tier.commit(1, Place(), 0)


def test_every_flipped_byte_cut_and_loss_is_noticed(tmp_path: Path, tier: Tier) -> None:
    """Of data where a piece is, and of the manifest anywhere."""
    manifest = save(tier, 5)
    home = tier.folder / manifest.folder
    spots = [(home / "manifest.json", at) for at in range(0, (home / "manifest.json").stat().st_size, 37)]
    spots += [
        (home / piece.file, piece.at + at) for piece in manifest.pieces for at in {0, piece.size - 1} if piece.size
    ]
    for path, at in spots:
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises((TornError, NewerFormatError, KeyUnusableError)):
            tier.verify(5)
        path.write_bytes(whole[:at])
        with pytest.raises(TornError):
            tier.verify(5, deep=False)
        path.write_bytes(whole)
    assert found(tier, 5) == 5
    for path in home.iterdir():
        path.rename(tmp_path / "kept")
        with pytest.raises(TornError):
            tier.verify(5, deep=False)
        path.symlink_to(tmp_path / "kept")
        with pytest.raises(CheckpointError):
            tier.verify(5, deep=False)
        path.unlink()
        (tmp_path / "kept").rename(path)


def test_a_damaged_piece_is_told_to_who_reads_only_that(tier: Tier) -> None:
    manifest = save(tier, 5)
    piece = manifest.pieces[0]
    path = tier.folder / manifest.folder / piece.file
    raw = bytearray(path.read_bytes())
    raw[piece.at + 10] ^= 1
    path.write_bytes(raw)
    with pytest.raises(TornError, match=r"model\.w"):
        tier.read(manifest, piece)
    tier.read(manifest, manifest.pieces[-1])
    tier.verify(5, ranks=[1])
    with pytest.raises(TornError):
        tier.verify(5, ranks=[0])


def test_a_renamed_folder_is_not_the_step_it_says(tier: Tier) -> None:
    save(tier, 5)
    (tier.folder / "step-000000000005").rename(tier.folder / "step-000000000009")
    with pytest.raises(TornError, match="renamed"):
        tier.verify(9)


def test_a_quarantined_one_is_out_of_sight_with_its_reason(tier: Tier) -> None:
    save(tier, 1)
    save(tier, 2)
    aside = tier.quarantine(2, "its loss is not a number")
    assert tier.steps() == (1,)
    assert "not a number" in (aside / "reason.txt").read_text()
    assert (tier.folder / "latest").read_text() == "step-000000000001\n"
    with pytest.raises(NoCheckpointError):
        tier.verify(2)


def test_sweeping_takes_what_did_not_end_and_nothing_else(tier: Tier) -> None:
    save(tier, 1)
    write(tier, 2)
    (tier.folder / ".tmp-0123").write_text("half")
    (tier.folder / "notes.txt").write_text("mine")
    assert tier.sweep() == 2
    assert {path.name for path in tier.folder.iterdir()} == {
        "step-000000000001",
        "latest",
        "lease-00000001",
        "notes.txt",
    }
    assert found(tier, 1) == 1


def test_a_reader_needs_no_lease_and_changes_nothing(tier: Tier) -> None:
    save(tier, 1)
    before = {path: path.stat().st_mtime_ns for path in tier.folder.rglob("*")}
    key = tier._key
    with reopened(tier, key) as reader:
        assert found(reader, 1) == 1
    assert {path: path.stat().st_mtime_ns for path in tier.folder.rglob("*")} == before


def test_names_of_attempts_cannot_leave_the_folder(tier: Tier) -> None:
    for attempt in ("../../../etc", "/etc/passwd", "a/b", "..", "x\n"):
        away = Place(attempt=attempt)
        tier.begin(1, away).write([], {})
    assert [path.name for path in tier.folder.parent.iterdir()] == ["checkpoints"]


def test_the_wrong_key_and_none_are_told_apart_from_damage(tmp_path: Path) -> None:
    with Tier(tmp_path, Key(bytes(32))) as tier:
        save(tier, 1)
    with pytest.raises(KeyUnusableError, match="is sealed with key"):
        Tier(tmp_path, Key(b"x" * 32)).verify(1)
    with pytest.raises(CheckpointError, match="give the runtime that key") as told:
        Tier(tmp_path).verify(1)
    assert not isinstance(told.value, TornError)
    assert found(Tier(tmp_path, Key(bytes(32))), 1) == 1


def test_sealed_checkpoints_tell_nothing_of_what_is_in_them(tmp_path: Path) -> None:
    with Tier(tmp_path, Key(bytes(32))) as tier:
        tier.begin(1, Place()).write(
            [Blob("secret.name", "uint8", (9000,), (0,), (9000,), b"plaintext" * 1000)], {"s": "state"}
        )
        tier.commit(1, Place(), 1, config={"token": "hunter2"})
    raw = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for word in (b"secret.name", b"plaintext", b"hunter2", b'"s"'):
        assert word not in raw


def test_without_o_direct_the_same_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refused = os.open, []

    def refuses(path, flags, mode=0o777, **rest):
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode, **rest)

    monkeypatch.setattr(os, "open", refuses)
    with Tier(tmp_path) as tier:
        save(tier, 4)
        assert refused
        assert found(tier, 4) == 4


def test_threads_are_given_back(tmp_path: Path) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with Tier(tmp_path) as tier:
        save(tier, 1)
    for thread in threading.enumerate():
        if thread.ident not in before:
            thread.join(10)
    assert {thread.ident for thread in threading.enumerate()} <= before
    assert isinstance(tier._storage, Storage)


def test_values_come_back_as_they_were(tier: Tier) -> None:
    values = {
        "best": float("inf"),
        "pcg64": 2**127 + 1,
        "small": 1e-310,
        "text": "\x00é\ud7ff",
        "deep": [[[None, True]], {}],
    }
    tier.begin(1, Place()).write([], values)
    tier.commit(1, Place(), 1, values=values, metric=float("-inf"), config=values)
    manifest = tier.verify(1)
    assert manifest.values == manifest.config == manifest.part(0).values == values
    assert manifest.metric == float("-inf")
    assert isinstance(manifest.values["pcg64"], int)


def test_values_that_cannot_be_kept_are_refused(tier: Tier) -> None:
    for values in ({"x": object()}, {"x": b"bytes"}, {1: 2}, {"x": {1, 2}}):
        with pytest.raises(CheckpointError):
            tier.begin(1, Place()).write([], values)  # type: ignore[arg-type]
        with pytest.raises(PartsMissingError):
            tier.commit(1, Place(), 0)
