"""Encryption at rest: AES-256-GCM, a key by URI. Each file has its own key, so that no nonce is used twice."""

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from runtime.checkpoint.format import CheckpointError, TornError

KEY_BYTES = 32
SALT_BYTES = 16
TAG_BYTES = 16
NONCE_BYTES = 12


class KeyUnusableError(CheckpointError):
    """The key cannot be had, or is not the one the checkpoint was sealed with."""


class Key:
    """A secret of 32 bytes. `id` names it without telling it; a checkpoint says which key it wants by that."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise KeyUnusableError(f"a key has {KEY_BYTES} bytes, this one has {len(secret)} · openssl rand -hex 32")
        self._secret = secret
        self.id = self._derive(b"", b"muster checkpoint key id")[:8].hex()

    def __repr__(self) -> str:
        return f"Key({self.id})"

    def file(self, salt: bytes) -> "Sealer":
        """The key of one file, or of one document."""
        return Sealer(self._derive(salt, b"muster checkpoint file"))

    def seal(self, body: bytes) -> bytes:
        """A document's body, sealed: the salt comes first."""
        salt = secrets.token_bytes(SALT_BYTES)
        return salt + self.file(salt).seal(body, 0)

    def unseal(self, body: bytes) -> bytes:
        """What was sealed. Raises TornError where it was changed."""
        return self.file(body[:SALT_BYTES]).unseal(body[SALT_BYTES:], 0)

    def opens(self, wanted: str, where: str) -> None:
        """Raises KeyUnusableError where the checkpoint was sealed with another key."""
        if wanted != self.id:
            raise KeyUnusableError(
                f"{where} is sealed with key {wanted[:40]}, and this is key {self.id} · give that one"
            )

    def _derive(self, salt: bytes, purpose: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=purpose).derive(self._secret)


class Sealer:
    """Seals chunks of one file. The nonce is the chunk's place in it: where nothing is written twice, none recurs."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(secret)

    def seal(self, chunk: bytes | memoryview, at: int) -> bytes:
        """`TAG_BYTES` more than the chunk."""
        return self._cipher.encrypt(at.to_bytes(NONCE_BYTES, "big"), chunk, None)

    def unseal(self, sealed: bytes | memoryview, at: int) -> bytes:
        """The chunk. Raises TornError where it is not what was sealed at this place."""
        try:
            return self._cipher.decrypt(at.to_bytes(NONCE_BYTES, "big"), sealed, None)
        except (InvalidTag, ValueError):
            raise TornError("sealed bytes were changed or moved · use an older checkpoint") from None


def key(uri: str, environment: Mapping[str, str] = os.environ) -> Key:
    """The key that a URI names: `file:PATH` or `env:NAME`, holding 32 bytes as hexadecimal or base64 text.

    Raises KeyUnusableError, which never tells the key.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return _decode(_private(Path(rest)), uri)
    if scheme == "env":
        if rest not in environment:
            raise KeyUnusableError(f"{uri}: the variable is not set · set it to the output of: openssl rand -hex 32")
        return _decode(environment[rest], uri)
    shown = scheme if scheme.isalnum() and len(scheme) < 20 and rest else "this"
    raise KeyUnusableError(f"{shown}: is no kind of key this version reads · use file:PATH or env:NAME")


def _private(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(4096)
    except OSError as error:
        raise KeyUnusableError(f"file:{path}: {error.strerror} · make it with: openssl rand -hex 32") from None
    if stat.S_IMODE(mode) & 0o077:
        raise KeyUnusableError(f"file:{path}: others may read it · chmod 600 {path}")
    return raw.decode(errors="replace")


def _decode(text: str, uri: str) -> Key:
    text = text.strip()
    for decode in (bytes.fromhex, lambda each: base64.b64decode(each, validate=True)):
        try:
            found = decode(text)
        except (ValueError, binascii.Error):
            continue
        if len(found) == KEY_BYTES:
            return Key(found)
    raise KeyUnusableError(f"{uri}: is not {KEY_BYTES} bytes in hexadecimal or base64 · openssl rand -hex 32")
