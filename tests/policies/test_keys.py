"""The signing key and the trusted keys."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from policies.keys import PRIVATE, PUBLIC, KeyFileError, create, read_public, signer, trusted


def test_a_key_is_made_once_and_its_public_half_verifies(tmp_path: Path) -> None:
    first, again = create(tmp_path / "keys"), create(tmp_path / "keys")
    assert first.public_key == again.public_key == read_public(tmp_path / "keys" / PUBLIC)
    read_public(tmp_path / "keys" / PUBLIC).verify_signature(first.sign(b"x"), b"x")
    assert stat.S_IMODE((tmp_path / "keys" / PRIVATE).stat().st_mode) == 0o600
    assert sorted(each.name for each in (tmp_path / "keys").iterdir()) == [PRIVATE, PUBLIC]
    assert signer(f"file:{tmp_path}/keys/{PRIVATE}").public_key == first.public_key


def test_of_two_that_create_at_once_both_get_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    winner = create(tmp_path / "other")
    real = os.link

    def late(source: str, target: Path) -> None:
        Path(target).write_bytes((tmp_path / "other" / PRIVATE).read_bytes())
        Path(target).chmod(0o600)
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    assert create(tmp_path / "keys").public_key == winner.public_key


@pytest.mark.parametrize(("call", "reason"), [("link", "No space"), ("fsync", "Input/output"), ("fchmod", "Read-only")])
def test_a_key_that_cannot_be_made_says_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, reason: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, reason)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(KeyFileError, match=rf"signing key in {tmp_path}/keys: {reason}; make room"):
        create(tmp_path / "keys")
    assert list((tmp_path / "keys").iterdir()) == []


def test_a_public_key_that_cannot_be_written_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path)
    (tmp_path / PUBLIC).unlink()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(KeyFileError, match="No space"):
        create(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [PRIVATE]


def test_a_folder_that_cannot_be_made_is_a_keys_error(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file")
    for folder in (tmp_path / "keys", tmp_path / "keys" / "below"):
        with pytest.raises(KeyFileError, match="signing key in"):
            create(folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    create(tmp_path)
    (tmp_path / PRIVATE).chmod(mode)
    with pytest.raises(KeyFileError, match=f"{mode:04o}.*chmod 600"):
        create(tmp_path)


def test_a_link_or_a_folder_or_rubbish_is_no_key(tmp_path: Path) -> None:
    create(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real" / PRIVATE)
    (tmp_path / "rubbish").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    (tmp_path / "rubbish").chmod(0o600)
    for name in ("link", "real", "rubbish", "missing"):
        with pytest.raises(KeyFileError, match=name):
            signer(f"file:{tmp_path / name}")


def test_an_encrypted_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    (tmp_path / "key").write_bytes(pem)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(KeyFileError, match="unencrypted"):
        signer(f"file:{tmp_path / 'key'}")


def test_a_kms_needs_its_public_key_and_its_library(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(KeyFileError, match="public key is not known"):
        signer("awskms:alias/muster")
    with pytest.raises(KeyFileError, match=r"awskms:alias/muster: .*install"):
        signer("awskms:alias/muster", tmp_path / PUBLIC)
    with pytest.raises(KeyFileError, match=r"unknown scheme.*awskms"):
        signer("ftp:key")


def test_trusting_nothing_is_an_error(tmp_path: Path) -> None:
    for paths in ([], [tmp_path]):
        with pytest.raises(KeyFileError, match="no public key"):
            trusted(paths)
    create(tmp_path)
    assert len(trusted([tmp_path])) == 1
    (tmp_path / "bad.pub").write_text("no key")
    with pytest.raises(KeyFileError, match=r"bad\.pub"):
        trusted([tmp_path])
