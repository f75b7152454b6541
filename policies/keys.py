"""The key that signs certificates, and the keys that a verifier trusts.

By default an Ed25519 key in a file of its own; a KMS or HSM by the URI schemes of securesystemslib (`awskms:`,
`gcpkms:`, `azurekms:`, `hv:`, `hsm:`, `gnupg:`), whose public key is then given as a PEM file.
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.exceptions import UnsupportedLibraryError
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, CryptoSigner, Key, Signer, SSlibKey

PRIVATE = "certificate-key.pem"
PUBLIC = "certificate-key.pub"

_LARGEST = 16 * 1024


class KeyFileError(Exception):
    """A key cannot be used: the message says which, where and what to do."""


def create(folder: Path) -> CryptoSigner:
    """The Ed25519 key of a folder, made where there is none.

    The private key is PKCS #8 PEM, mode 0600, and appears whole or not at all; of two that create at once, both get
    the key of the first. The public key lies beside it. Raises KeyFileError.
    """
    path = folder / PRIVATE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _link_new(path, CryptoSigner.generate_ed25519().private_bytes)
        signer = _open(path)
        _write_public(folder / PUBLIC, signer)
    except OSError as broken:
        why = broken.strerror or str(broken)
        raise KeyFileError(
            f"signing key in {folder}: {why}; make room or give yourself the right to write there"
        ) from broken
    return signer


def signer(uri: str, public: Path | None = None) -> Signer:
    """The signer behind `file:PATH` or a URI of a KMS or HSM, which needs its public key. Raises KeyFileError."""
    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return _open(Path(rest))
    if scheme not in SIGNER_FOR_URI_SCHEME:
        known = ", ".join(["file", *sorted(SIGNER_FOR_URI_SCHEME)])
        raise KeyFileError(f"key {uri}: unknown scheme; use one of {known}")
    if public is None:
        raise KeyFileError(f"key {uri}: its public key is not known; give it as a PEM file")
    try:
        return Signer.from_priv_key_uri(uri, read_public(public))
    except UnsupportedLibraryError as missing:
        raise KeyFileError(f"key {uri}: {missing}; install that extra of securesystemslib") from missing
    except Exception as broken:
        raise KeyFileError(
            f"key {uri}: {type(broken).__name__}: {broken}; check the address and your rights"
        ) from broken


def read_public(path: Path) -> Key:
    """A public key from a PEM file. Its id is derived from the key, so that no file can claim another's.

    Raises KeyFileError.
    """
    try:
        with path.open("rb") as file:
            return SSlibKey.from_crypto(load_pem_public_key(file.read(_LARGEST)))
    except (OSError, ValueError, UnsupportedAlgorithm) as broken:
        raise KeyFileError(f"public key {path}: {broken}; give a PEM file made by muster or openssl") from broken


def trusted(paths: Iterable[Path]) -> tuple[Key, ...]:
    """The public keys in files and in folders' `*.pub`. None at all is an error: it would refuse everything.

    Raises KeyFileError.
    """
    paths = tuple(paths)
    files = [file for path in paths for file in (sorted(path.glob("*.pub")) if path.is_dir() else [path])]
    if not files:
        raise KeyFileError(f"no public key in {', '.join(map(str, paths)) or 'an empty list'}; give one to trust")
    return tuple(read_public(file) for file in files)


def _open(path: Path) -> CryptoSigner:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as broken:
        raise KeyFileError(f"private key {path}: {broken.strerror}") from broken
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise KeyFileError(f"private key {path}: not a file")
        if about.st_mode & 0o077:
            mode = stat.S_IMODE(about.st_mode)
            raise KeyFileError(f"private key {path}: others may use it (mode {mode:04o}); run chmod 600, or replace it")
        if about.st_uid not in (0, os.geteuid()):
            raise KeyFileError(f"private key {path}: it belongs to user {about.st_uid}, not to you")
        pem = os.read(handle, _LARGEST)
    finally:
        os.close(handle)
    try:
        return CryptoSigner(load_pem_private_key(pem, None))
    except (ValueError, TypeError, UnsupportedAlgorithm) as broken:
        raise KeyFileError(f"private key {path}: {broken}; it must be an unencrypted PKCS #8 PEM") from broken


def _link_new(path: Path, content: bytes) -> None:
    """Writes a file under a name that only the first of several gets."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o600)
            file.write(content)
            file.flush()
            os.fsync(handle)
        try:
            os.link(scratch, path)
        except FileExistsError:
            return
    finally:
        os.unlink(scratch)  # noqa: PTH108


def _write_public(path: Path, signer: CryptoSigner) -> None:
    public = load_pem_private_key(signer.private_bytes, None).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if path.is_file() and path.read_bytes() == pem:
        return
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)
            file.write(pem)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
