"""The lab's node image: a Debian root filesystem that holds every package roles use, with nothing enabled.

It is built once by mmdebstrap from the recipe beside this file and kept by the recipe's digest; lab machines use it as
the lower layer of an overlay and never write to it.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from images.node.mirror import mirror
from images.store import Builder, BuildError, Say, keep, recipe_digest, recipe_files
from spec.folders import cache

_RECIPE = Path(__file__).parent / "recipe"


def digest() -> str:
    """The name of the image that this checkout's recipe makes.

    It says nothing of the versions that the mirror had on the day of the build: `packages` does.
    """
    return recipe_digest(recipe_files(_RECIPE), relative_to=_RECIPE)


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
    recipe: dict[str, Any] = YAML(typ="safe").load(_RECIPE / "packages.yaml")
    wanted = [package for group in recipe["groups"] for package in group["packages"]]
    newest = str(recipe["newest_file"])
    source = mirror(recipe["suite"])
    filesystem = into / "rootfs"
    say(f"node image: {len(wanted)} packages and what they need, from {source.site}")
    # In namespaces of its own, so that its processes and mounts end when the build does, however that ends.
    builder.run(
        [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            "mmdebstrap",
            "--verbose",
            "--mode=root",
            "--format=directory",
            f"--variant={recipe['variant']}",
            f"--include={','.join(wanted)}",
            f"--dpkgopt={_RECIPE / 'dpkg.cfg'}",
            *(f"--aptopt={option}" for option in source.options),
            f"--customize-hook={_RECIPE / 'customise'}",
            recipe["suite"],
            filesystem,
            *source.lines,
        ],
        env={"SOURCE_DATE_EPOCH": newest},
        line=_Progress(say),
    )
    builder.run([_RECIPE / "finish", filesystem, newest])
    (into / "packages.json").write_text(json.dumps(_installed(filesystem), indent=1, sort_keys=True) + "\n")


def _installed(filesystem: Path) -> dict[str, str]:
    """Packages and versions, as dpkg's own database in the root has them."""
    listing = subprocess.run(
        ["dpkg-query", f"--admindir={filesystem / 'var/lib/dpkg'}", "--show", "--showformat=${Package}=${Version}\n"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    return dict(line.split("=", 1) for line in listing.splitlines())


class _Progress:
    """Turns mmdebstrap's output into a few lines: its stages, and every fiftieth package set up."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._set_up = 0

    def __call__(self, line: str) -> None:
        if line.startswith("I: "):
            self._say(f"node image: {line[3:]}")
        elif line.startswith("Setting up "):
            self._set_up += 1
            if self._set_up % 50 == 0:
                self._say(f"node image: {self._set_up} packages set up")
