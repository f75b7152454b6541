"""The node image as a virtual machine's: the same recipe on a disk, with a kernel and a small initrd.

A machine's own disk is an overlay on `disk`. What makes it this machine (host name, keys, addresses) is a second disk,
an ext4 filesystem labelled `muster-identity` whose files the initrd copies onto the root before systemd starts: make it
with `mkfs.ext4 -d FOLDER -L muster-identity FILE SIZE`, and put `root=/dev/vda rw console=ttyS0 muster.identity` on the
kernel's command line.
"""

import os
import shutil
from pathlib import Path

from images import node
from images.node.debian import RECIPE, bootstrap
from images.store import Builder, BuildError, Say, keep, read_recipe, recipe_digest, recipe_files
from spec.folders import cache

_RECIPE = Path(__file__).parent / "vm_recipe"


def digest() -> str:
    """The name of what this checkout's recipes make: the node image's digest, and that of both recipes together."""
    both = recipe_digest(recipe_files(RECIPE, _RECIPE), relative_to=_RECIPE.parent)
    return f"{node.digest()}-{both}"


def folder(of: str | None = None) -> Path:
    """Where a digest's disk, kernel and initrd are kept, and `packages.json`, whether they are built or not.

    Without one it is that of this checkout's recipes, here and below.
    """
    return cache() / "images" / "vm" / (of or digest())


def kernel(of: str | None = None) -> Path:
    """The kernel, for QEMU's -kernel."""
    return folder(of) / "vmlinuz"


def initrd(of: str | None = None) -> Path:
    """The initrd, for QEMU's -initrd."""
    return folder(of) / "initrd"


def base(of: str | None = None) -> Path:
    """The disk that machines' own are overlays on, in format qcow2."""
    return folder(of) / "disk.qcow2"


def disk(say: Say) -> Path:
    """Builds disk, kernel and initrd unless they are there. Returns the disk, in format qcow2.

    Needs root, a Debian mirror, mkfs.ext4 and qemu-img; takes minutes and 6 GB while it builds. Raises BuildError.
    """
    made = base()
    if not made.exists() and os.geteuid() != 0:
        raise BuildError("the disk has files of many owners, and this is not root · images/node · run it as root")
    keep(folder(), lambda into, builder: _make(into, builder, say), say)
    return made


def _make(into: Path, builder: Builder, say: Say) -> None:
    recipe = read_recipe(_RECIPE / "packages.yaml")
    filesystem, raw = into / "rootfs", into / "disk.raw"
    hook = f"--essential-hook={_RECIPE / 'prepare'}"
    bootstrap(filesystem, builder, say, also=recipe["packages"], options=[hook])
    node.write_packages(filesystem, into / "packages.json")
    for name, link in (("vmlinuz", "vmlinuz"), ("initrd", "initrd.img")):
        # The link is absolute inside the root, or relative to it: either way its target's name is below /boot.
        shutil.copyfile(filesystem / "boot" / (filesystem / link).readlink().name, into / name)
    say("node image: writing the virtual machine's disk")
    size = f"{recipe['virtual_gib']}G"
    builder.run(["mkfs.ext4", "-q", "-F", "-L", "muster-root", "-d", filesystem, raw, size])
    shutil.rmtree(filesystem)
    builder.run(["qemu-img", "convert", "-O", "qcow2", raw, into / "disk.qcow2"])
    raw.unlink()
