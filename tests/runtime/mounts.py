"""Real mounts for tests, in a mount namespace of their own, whose storage stalls, goes away, fills up and errs.

bindfs hands a folder on through FUSE. While its process is stopped, every call on the mount hangs, as on an NFS mount
whose server does not answer; once it is killed, the mount is stale.
"""

import contextlib
import fcntl
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

LOOP_SET_STATUS64, LOOP_GET_STATUS64 = 0x4C04, 0x4C05


class Namespace:
    """The mount namespace of a process, for as long as that lives. Commands run in it as root."""

    def __init__(self, holder: int) -> None:
        own, made = Path("/proc/self/ns/mnt").readlink(), Path(f"/proc/{holder}/ns/mnt")
        wait_for(lambda: made.readlink() != own, "the namespace is not made")
        self.root = Path(f"/proc/{holder}/root")
        self.enter = ("nsenter", f"--mount=/proc/{holder}/ns/mnt")

    def run(self, *command: str | Path) -> None:
        """Raises where it fails."""
        subprocess.run([*self.enter, *map(str, command)], check=True, stdin=subprocess.DEVNULL, timeout=60)

    def mounted(self, at: Path) -> bool:
        return f" {at} " in (self.root.parent / "mountinfo").read_text()

    def seen(self, path: Path) -> Path:
        """A path in it, as it is seen from outside."""
        return self.root / path.relative_to("/")


def wait_for(what: Callable[[], bool], otherwise: str, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


class Handed:
    """A folder that is handed on by bindfs to where it is mounted."""

    says = ""

    def __init__(self, namespace: Namespace, folder: Path, *options: str) -> None:
        if not Path("/dev/fuse").exists() or shutil.which("bindfs") is None:
            pytest.skip("mounts a folder by FUSE: apt-get install bindfs")
        self.namespace, self.at, self.whole, self.options = namespace, folder / "mount", folder / "below", options
        self.at.mkdir()
        self.whole.mkdir()
        self.mount()

    def mount(self) -> None:
        # It goes with the test, whatever becomes of that.
        command = ["setpriv", "--pdeathsig", "KILL", "bindfs", "-f", *self.options, str(self.whole), str(self.at)]
        self.server = subprocess.Popen([*self.namespace.enter, *command], stdin=subprocess.DEVNULL)
        wait_for(lambda: self.namespace.mounted(self.at), "bindfs does not mount")

    def fail(self) -> None:
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Unmounts. Calls that hang fail then."""
        self.server.send_signal(signal.SIGCONT)
        self.server.kill()
        self.server.wait(60)
        with contextlib.suppress(subprocess.CalledProcessError):
            self.namespace.run("umount", "--lazy", self.at)


class Stalling(Handed):
    """Answers nothing until it is mended, and then all that it was asked."""

    says = "no answer for"

    def fail(self) -> None:
        self.server.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.server.pid}/stat")
        wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "bindfs does not stop")

    def mend(self) -> None:
        self.server.send_signal(signal.SIGCONT)


class Stale(Handed):
    """Its server is gone, and the mount is still there; mended, it is mounted anew."""

    says = "mount it again on this node"

    def fail(self) -> None:
        self.server.kill()
        self.server.wait(60)

    def mend(self) -> None:
        self.namespace.run("umount", "--lazy", self.at)
        self.mount()


class Small:
    """A disk in memory that somebody else fills."""

    says = "free space there"

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.at = namespace, folder / "mount"
        self.at.mkdir()
        namespace.run("mount", "-t", "tmpfs", "-o", "size=8m", "muster", self.at)
        self.whole = namespace.seen(self.at)
        self._filler = self.whole / "filler"

    def fail(self) -> None:
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def mend(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        self.namespace.run("umount", "--lazy", self.at)


class ReadOnly(Small):
    """A disk that is remounted read-only, as ext4 is after an error."""

    says = "remount it"

    def fail(self) -> None:
        self.namespace.run("mount", "-o", "remount,ro", self.at)

    def mend(self) -> None:
        self.namespace.run("mount", "-o", "remount,rw", self.at)


class Erring:
    """A disk (ext2 in a file) whose device reports errors: of all that lies beyond its first 64 kB."""

    says = "look at the device's health"

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.at, image = namespace, folder / "mount", folder / "image"
        self.at.mkdir()
        made_in(image, "mkfs.ext2", "-q", "-F")
        namespace.run("mount", "-o", "loop", image, self.at)
        self.whole = namespace.seen(self.at)
        asked = subprocess.run(
            ["losetup", "--associated", image, "--noheadings", "--output", "NAME"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        self._device = Path(asked.stdout.strip())

    def fail(self) -> None:
        self._ends_at(1 << 16)

    def mend(self) -> None:
        self._ends_at(0)

    def close(self) -> None:
        self.mend()
        self.namespace.run("umount", "--lazy", self.at)

    def _ends_at(self, byte: int) -> None:
        """Limits the loop device (struct loop_info64 of linux/loop.h); 0 is all of it."""
        info = bytearray(232)
        with self._device.open("rb") as device:
            fcntl.ioctl(device, LOOP_GET_STATUS64, info)
            struct.pack_into("=Q", info, 32, byte)
            fcntl.ioctl(device, LOOP_SET_STATUS64, info)


class Frozen:
    """A disk (ext4 in a file) that takes no write. No signal ends a call on it."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.at = namespace, folder / "mount"
        self.at.mkdir()
        made_in(folder / "image", "mkfs.ext4", "-q", "-F")
        namespace.run("mount", "-o", "loop", folder / "image", self.at)
        self.whole = namespace.seen(self.at)

    def fail(self) -> None:
        self.namespace.run("fsfreeze", "--freeze", self.at)

    def mend(self) -> None:
        self.namespace.run("fsfreeze", "--unfreeze", self.at)

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.mend()
        self.namespace.run("umount", "--lazy", self.at)


class WithoutLinks:
    """A disk (exFAT in a file, by FUSE) on which no file has a second name."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        if not Path("/dev/fuse").exists() or None in (shutil.which("mkfs.exfat"), shutil.which("mount.exfat-fuse")):
            pytest.skip("mounts an exFAT disk by FUSE: apt-get install exfatprogs exfat-fuse")
        self.namespace, self.at = namespace, folder / "mount"
        self.at.mkdir()
        made_in(folder / "image", "mkfs.exfat")
        namespace.run("mount", "-t", "exfat-fuse", "-o", "loop", folder / "image", self.at)

    def close(self) -> None:
        self.namespace.run("umount", self.at)


def made_in(image: Path, *command: str) -> None:
    """A file system in a file."""
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run([*command, image], check=True, stdout=subprocess.DEVNULL)
