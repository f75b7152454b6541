"""Makes a node's root filesystem with mmdebstrap from the recipe beside this file."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from images.node.mirror import mirror
from images.store import Builder, Say, read_recipe
from spec.folders import cache

RECIPE = Path(__file__).parent / "recipe"


def bootstrap(
    filesystem: Path, builder: Builder, say: Say, *, also: Sequence[str] = (), options: Sequence[str] = ()
) -> None:
    """Fills a folder that does not exist yet. Raises BuildError.

    Args: `also` are packages beyond the recipe's, `options` go to mmdebstrap (hooks, as `--essential-hook=PROGRAM`).
    """
    recipe = read_recipe(RECIPE / "packages.yaml")
    wanted = [*(package for group in recipe["groups"] for package in group["packages"]), *also]
    newest = str(recipe["newest_file"])
    source = mirror(recipe["suite"])
    say(f"node image: {len(wanted)} packages and what they need, from {source.site}")
    # In namespaces of its own, so that its processes and mounts end when the build does, however that ends.
    builder.run(
        [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            *("mmdebstrap", "--verbose", "--mode=root", "--format=directory", f"--variant={recipe['variant']}"),
            f"--include={','.join(wanted)}",
            f"--dpkgopt={RECIPE / 'dpkg.cfg'}",
            *(f"--aptopt={option}" for option in source.options),
            *_kept_downloads(),
            *options,
            f"--customize-hook={RECIPE / 'customise'}",
            *(recipe["suite"], filesystem, *source.lines),
        ],
        env={"SOURCE_DATE_EPOCH": newest},
        line=_Progress(say),
    )
    builder.run([RECIPE / "finish", filesystem, newest])


def _kept_downloads() -> list[str]:
    """Options that keep downloaded packages beside the images: a build that was interrupted goes on from there."""
    archives = cache() / "images" / "debian-archives"
    archives.mkdir(parents=True, exist_ok=True)
    inside = '"$1/var/cache/apt/archives"'
    return [
        "--skip=essential/unlink,cleanup/apt/cache",
        f"--setup-hook=mkdir -p {inside} && mount --bind {shlex.quote(str(archives))} {inside}",
        f"--customize-hook=umount {inside}",
    ]


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
