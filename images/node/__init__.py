"""The lab's node image: a Debian root filesystem that holds every package roles use, with nothing enabled.

It is built once by mmdebstrap from the recipe beside this file and kept by the recipe's digest; lab machines use it as
the lower layer of an overlay and never write to it. `images.node.vm` makes a virtual machine's disk of the same recipe.
"""

import json
import os
import subprocess
from pathlib import Path

from images.node.debian import RECIPE, bootstrap
from images.store import Builder, BuildError, Say, keep, recipe_digest, recipe_files
from spec.folders import cache


def digest() -> str:
    """The name of the image that this checkout's recipe makes.

    It says nothing of the versions that the mirror had on the day of the build: `packages` does.
    """
    return recipe_digest(recipe_files(RECIPE), relative_to=RECIPE)


def folder(of: str) -> Path:
    """Where the image of a digest is kept: `rootfs`, and what is said about it in `packages.json`."""
    return cache() / "images" / "node" / of


def root(of: str) -> Path:
    """The root filesystem of a digest, whether it is built or not. Read-only for everybody."""
    return folder(of) / "rootfs"


def packages(of: str) -> dict[str, str]:
    """Every Debian package in a built image with its version. Raises FileNotFoundError where it is not built."""
    found: dict[str, str] = json.loads((folder(of) / "packages.json").read_text())
    return found


def build(say: Say) -> Path:
    """Builds the image unless it is there, and returns its root filesystem.

    Needs root and a Debian mirror, 2 GB of disk, and minutes. Raises BuildError.
    """
    name = digest()
    if not root(name).is_dir() and os.geteuid() != 0:
        raise BuildError("the node image has files of many owners, and this is not root · images/node · run it as root")
    keep(folder(name), lambda into, builder: _make(into, builder, say), say)
    return root(name)


def _make(into: Path, builder: Builder, say: Say) -> None:
    bootstrap(into / "rootfs", builder, say)
    write_packages(into / "rootfs", into / "packages.json")


def write_packages(filesystem: Path, to: Path) -> None:
    """Writes the packages of a root and their versions, as dpkg's own database there has them."""
    listing = subprocess.run(
        ["dpkg-query", f"--admindir={filesystem / 'var/lib/dpkg'}", "--show", "--showformat=${Package}=${Version}\n"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    found = dict(line.split("=", 1) for line in listing.splitlines())
    to.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
