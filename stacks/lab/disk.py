"""A machine's disk: what it has of its own above the node image, and the identity written there when it is made."""

import asyncio
import hashlib
import os
import pwd
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from images import node
from spec.folders import cache
from stacks.lab import access
from stacks.lab.model import Machine, machines_folder

VENDOR_MOUNT = "/srv/muster/vendor"
"""Where a machine finds the vendor's package repository, read-only."""


def vendor_repository(digest: str) -> Path:
    """The vendor package repository that machines see read-only."""
    return cache() / "images" / "vendor" / digest


def vendor_of(machine: Machine) -> Path | None:
    """That of a machine, none where it has none or it is not in the cache."""
    where = vendor_repository(machine.vendor) if machine.vendor else None
    return where if where and where.is_dir() else None


def folder(machine: Machine) -> Path:
    """All that a machine keeps on the host."""
    return machines_folder(machine.stack) / machine.name


def declared(where: Path) -> Machine | None:
    """The machine whose disk is complete in a folder, or none: the declaration is what is written last."""
    try:
        return Machine.model_validate_json((where / "machine.json").read_bytes())
    except (OSError, ValueError):
        return None


def creation(where: Path) -> str:
    """What tells this disk from an earlier one of the same machine."""
    return (where / "creation").read_text().strip()


async def prepare(machine: Machine, fill: Callable[[Machine, Path], None]) -> None:
    """Makes a machine's disk by `fill`, or keeps it where it stands on the same image.

    Raises LookupError without the image.
    """
    root, where = node.root(machine.node_image), folder(machine)
    if not (root / "sbin/init").exists():
        raise LookupError(
            f"the node image {machine.node_image} is not in the cache · {root} · run muster up, which builds it"
        )
    found = declared(where)
    if not found or (found.image, found.kind) != (machine.image, machine.kind):
        await asyncio.to_thread(shutil.rmtree, where, ignore_errors=True)
        where.mkdir(parents=True)
        where.chmod(0o700)
        access.write(where / "creation", secrets.token_hex(8) + "\n")
        await asyncio.to_thread(fill, machine, where)
    access.write(where / "machine.json", machine.model_dump_json(indent=2) + "\n")


def identify(machine: Machine, where: Path, into: Path) -> "Layer":
    """Writes what makes a machine this machine over its image's files, and who may log in."""
    root = node.root(machine.node_image)
    host = access.make_key(where / access.HOST_KEY, machine.name)
    allowed = access.user_key(machine.stack)
    user = _user(root, access.USER)
    layer = Layer(into, root)
    seed = f"{machine.stack}/{machine.name}/{creation(where)}"
    layer.write("etc/machine-id", hashlib.sha256(seed.encode()).hexdigest()[:32] + "\n", mode=0o444)
    layer.write("etc/hostname", machine.name + "\n")
    layer.write(f"etc/ssh/{access.HOST_KEY}", (where / access.HOST_KEY).read_text(), mode=0o600)
    layer.write(f"etc/ssh/{access.HOST_KEY}.pub", host + "\n")
    home = user.pw_dir.lstrip("/")
    owner = (user.pw_uid, user.pw_gid)
    layer.folder(f"{home}/.ssh", mode=0o700, owner=owner)
    layer.write(f"{home}/.ssh/authorized_keys", allowed + "\n", mode=0o600, owner=owner)
    return layer


def hosts_file(machine: Machine) -> str:
    """What a new machine knows of names: its own. The roles know the others'."""
    own = f"{machine.address.ip}\t{machine.name}\n"
    return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}"


def _user(root: Path, name: str) -> pwd.struct_passwd:
    """A user of the image, not of the host. Raises LookupError where the image has none of that name."""
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) == 7:
            return pwd.struct_passwd((*fields[:2], int(fields[2]), int(fields[3]), *fields[4:]))
    raise LookupError(f"the node image has no user {name!r} · {root}/etc/passwd · build it again from images/node")


class Layer:
    """The upper layer of an overlay: a folder made in it takes mode and owner from the one it covers."""

    def __init__(self, upper: Path, lower: Path) -> None:
        self.upper, self.lower = upper, lower

    def folder(self, path: str, mode: int | None = None, owner: tuple[int, int] | None = None) -> Path:
        """Makes a folder and those above it."""
        target = self.upper / path
        if not target.exists():
            if target.parent != self.upper and not target.parent.exists():
                self.folder(str(Path(path).parent))
            covered = (self.lower / path).stat() if (self.lower / path).exists() else None
            target.mkdir()
            target.chmod(mode if mode is not None else (covered.st_mode & 0o7777 if covered else 0o755))
            os.chown(target, *(owner or ((covered.st_uid, covered.st_gid) if covered else (0, 0))))
        return target

    def write(self, path: str, text: str, mode: int = 0o644, owner: tuple[int, int] = (0, 0)) -> None:
        """Writes a file that covers the image's."""
        target = self.folder(str(Path(path).parent)) / Path(path).name
        target.touch(mode=0o600)
        target.write_text(text)
        target.chmod(mode)
        os.chown(target, *owner)

    def link(self, path: str, to: str) -> None:
        """Makes a symbolic link that covers the image's file."""
        target = self.folder(str(Path(path).parent)) / Path(path).name
        target.unlink(missing_ok=True)
        target.symlink_to(to)
