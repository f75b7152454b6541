"""Makes a folder of packages an apt repository, signed with a key that exists only while it is made."""

import hashlib
import subprocess
import tempfile
from email.utils import formatdate
from pathlib import Path

from images.store import Builder
from images.vendor.deb import MADE

KEY = "vendor.asc"
"""The public key in the repository, as text: what `signed-by` names, and what Signed-By can hold."""
_OWNER = "Muster lab vendor repository (simulated packages) <vendor@muster.invalid>"


def index(folder: Path) -> None:
    """Writes `Packages` and `Release` for the packages in a folder: a flat repository."""
    stanzas = []
    for deb in sorted(folder.glob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "--field", str(deb)], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        content = deb.read_bytes()
        stanzas.append(
            f"{control}Filename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    listing = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(listing)
    (folder / "Release").write_text(
        "Origin: Muster\nLabel: Muster lab vendor repository (simulated)\nSuite: ./\nArchitectures: amd64\n"
        f"Date: {formatdate(MADE, usegmt=True)}\n"
        f"SHA256:\n {hashlib.sha256(listing).hexdigest()} {len(listing)} Packages\n"
    )


def sign(folder: Path, builder: Builder) -> None:
    """Signs `Release` as `InRelease`, and leaves the public key beside it. The secret key is thrown away."""
    with tempfile.TemporaryDirectory(prefix="muster-gpg-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--no-tty", "--quiet", "--faked-system-time", f"{MADE}"]
        gpg += ["--passphrase", "", "--pinentry-mode", "loopback"]
        try:
            builder.run([*gpg, "--quick-generate-key", _OWNER, "ed25519", "sign", "never"])
            builder.run([*gpg, "--output", folder / "InRelease", "--clearsign", folder / "Release"])
            builder.run([*gpg, "--armor", "--output", folder / KEY, "--export"])
        finally:
            builder.run(["gpgconf", "--homedir", home, "--kill", "all"])
