"""The calls to the file system, each bounded in time: the one place where the checkpoint touches it.

A stalled disk or a stale mount can hold a system call for ever, and no signal ends it. So each call is made by a thread
that the caller can leave behind: it gets StalledError after `stall_s`, and training goes on. What a late call may still
do is harmless by how the tier works: data files and temporary names are never used twice, and a descriptor on which a
call stalled is never closed, so that its number cannot come to mean another file.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from runtime.checkpoint.format import CheckpointError

T = TypeVar("T")

MOST_STALLED = 32
"""Threads that may hang at once before further calls are refused: each holds memory until its call returns."""


class StorageError(CheckpointError):
    """The file system refused or failed a call. `passing`: the same call may succeed later, without anybody's help."""

    passing = True


class FullError(StorageError):
    """No space, inodes or quota left."""


class ReadOnlyError(StorageError):
    """The file system is mounted read-only, which is also what ext4 does after an error."""

    passing = False


class DeniedError(StorageError):
    """This user may not."""

    passing = False


class StaleError(StorageError):
    """The mount or the folder is gone from under us."""


class StalledError(StorageError):
    """A call did not return within the time limit."""


class FailingError(StorageError):
    """The device or the network below reported an error."""


class NoLinksError(StorageError):
    """The file system has no hard links."""

    passing = False


KINDS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOSPC: (FullError, "free space there, or keep fewer checkpoints"),
    errno.EDQUOT: (FullError, "free space there, or raise the quota"),
    errno.EROFS: (ReadOnlyError, "look in the kernel's log for why it was remounted, and remount it"),
    errno.EACCES: (DeniedError, "give this user the right to write there"),
    errno.EPERM: (DeniedError, "give this user the right to write there"),
    errno.ESTALE: (StaleError, "mount it again on this node"),
    errno.ENOTCONN: (StaleError, "mount it again on this node"),
    errno.ECONNABORTED: (StaleError, "mount it again on this node"),
    errno.ESHUTDOWN: (StaleError, "mount it again on this node"),
    errno.ENOENT: (StaleError, "see whether it was unmounted or removed"),
    errno.ENODEV: (StaleError, "mount it again on this node"),
    errno.ENXIO: (StaleError, "mount it again on this node"),
}
"""What an error means and what to do; any other is FailingError.

A FUSE mount whose server is gone answers ENOTCONN, and ECONNABORTED to the calls that it had; a client that Ceph or
Lustre shut out ESHUTDOWN; an NFS server that forgot a file ESTALE.
"""

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What link(2) says where a file system has no hard links (EPERM by its manual; FUSE hands ENOSYS on)."""


def storage_error(error: OSError, what: str, path: Path) -> StorageError:
    """The error that says what was done where, and what to do."""
    kind, advice = KINDS.get(error.errno or 0, (FailingError, "look at the device's health and at the kernel's log"))
    return kind(f"cannot {what}: {error.strerror or error} · {path} · {advice}")


class Started(Generic[T]):
    """A call under way."""

    def __init__(self, future: "Future[T]", what: str, path: Path, stall_s: float) -> None:
        self._future, self._what, self._path, self._stall_s = future, what, path, stall_s

    def result(self) -> T:
        """What it returned. Raises StorageError where it failed, StalledError where it does not return."""
        try:
            return self._future.result(self._stall_s)
        except TimeoutError as late:
            # Also what a soft network mount says by itself: that call has returned.
            if self._future.done():
                raise storage_error(late, self._what, self._path) from late
            raise StalledError(
                f"cannot {self._what}: no answer for {self._stall_s:g} s · {self._path} · "
                "look whether the storage's servers answer; a stale mount must be mounted again"
            ) from None
        except OSError as error:
            raise storage_error(error, self._what, self._path) from error


class Storage:
    """A file system below which every call has a time limit. Threads are made as they are needed, and kept."""

    def __init__(self, stall_s: float = 120.0) -> None:
        self.stall_s = stall_s
        self._idle: list[SimpleQueue[Any]] = []
        self._busy = 0
        self._lock = threading.Lock()

    def start(self, what: str, path: Path, call: Callable[[], T]) -> Started[T]:
        """Has a thread make the call. Raises StalledError where too many calls hang already."""
        future: Future[T] = Future()
        with self._lock:
            if self._busy >= MOST_STALLED:
                raise StalledError(f"cannot {what}: {self._busy} earlier calls hang · {path} · mount it again")
            self._busy += 1
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = SimpleQueue()
            threading.Thread(target=self._work, args=(jobs,), daemon=True, name="muster-storage").start()
        jobs.put((future, call))
        return Started(future, what, path, self.stall_s)

    def do(self, what: str, path: Path, call: Callable[[], T]) -> T:
        """Makes the call. Raises StorageError."""
        return self.start(what, path, call).result()

    def close(self) -> None:
        """Lets the threads end that hang in nothing."""
        with self._lock:
            idle, self._idle = self._idle, []
        for jobs in idle:
            jobs.put(None)

    def _work(self, jobs: "SimpleQueue[Any]") -> None:
        while job := jobs.get():
            future, call = job
            try:
                outcome, error = call(), None
            except BaseException as wrong:
                outcome, error = None, wrong
            # Back among the idle before the answer is told, so that one caller keeps one thread.
            with self._lock:
                self._busy -= 1
                self._idle.append(jobs)
            if error is None:
                future.set_result(outcome)
            else:
                future.set_exception(error)
            del job, future, call, outcome, error

    # What the tier does with files and folders.

    def make_folder(self, path: Path) -> bool:
        """Makes it, and says whether it did; it may be there. What is above it must be there.

        Where a mount is gone, its empty folder is on another disk: that must not be filled instead.
        """

        def make() -> bool:
            try:
                path.mkdir()
            except FileExistsError:
                return False
            return True

        return self.do("make the folder", path, make)

    def names(self, path: Path) -> list[str]:
        """What is in a folder; nothing where there is none."""

        def listed() -> list[str]:
            try:
                return sorted(os.listdir(path))  # noqa: PTH208
            except FileNotFoundError:
                return []

        return self.do("list the folder", path, listed)

    def size(self, path: Path) -> int | None:
        """Bytes of a regular file; none where it is none, or a link."""

        def asked() -> int | None:
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                return None
            return found.st_size if (found.st_mode & 0o170000) == 0o100000 else None

        return self.do("look at the file", path, asked)

    def read(self, path: Path, most: int) -> bytes | None:
        """A file's bytes; none where there is no file. Links are not followed. Raises CheckpointError beyond `most`."""

        def load() -> bytes | None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return None
            with open(fd, "rb") as file:  # noqa: PTH123
                return file.read(most + 1)

        raw = self.do("read the file", path, load)
        if raw is not None and len(raw) > most:
            raise CheckpointError(f"{path} has more than {most} bytes · it is no file of a checkpoint")
        return raw

    def put(self, path: Path, raw: bytes, temporary: Path) -> None:
        """A small file, whole or not at all: written beside, synced, renamed, and the folder synced."""

        try:
            self.create(temporary, raw)
            self.rename(temporary, path)
        except StalledError:
            raise
        except StorageError:
            with contextlib.suppress(StorageError):
                self.unlink(temporary)
            raise
        self.sync_folder(path.parent)

    def create(self, path: Path, raw: bytes) -> None:
        """A new small file, synced. A reader may see half of it: only for names that nobody reads."""

        def write() -> None:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(fd, "wb") as file:  # noqa: PTH123
                file.write(raw)
                file.flush()
                os.fsync(fd)

        self.do("write the file", path, write)

    def rename(self, source: Path, target: Path) -> None:
        """As rename(2)."""
        self.do("rename the file", target, lambda: os.rename(source, target))  # noqa: PTH104

    def link(self, source: Path, target: Path) -> bool:
        """A second name for a file; false where the name is another's. Raises NoLinksError."""

        def make() -> bool:
            try:
                os.link(source, target)
            except FileExistsError:
                # NFS asks again where an answer was lost: then the name that is there is this one.
                return target.samefile(source)
            except OSError as error:
                if error.errno in NO_LINKS:
                    raise NoLinksError(
                        f"no hard link can be made ({error.strerror}), by which one of several jobs gets a folder · "
                        f"{target.parent} · use a file system that has them, as NFS, Lustre, CephFS, ext4 or XFS: one "
                        "without (FAT, mounts of object stores) is no place to rename a checkpoint at once either"
                    ) from None
                raise
            return True

        return self.do("link the file", target, make)

    def unlink(self, path: Path) -> None:
        """Removes a file, if it is there."""
        self.do("remove the file", path, lambda: path.unlink(missing_ok=True))

    def remove_folder(self, path: Path) -> None:
        """Removes an emptied folder, if it is there."""

        def remove() -> None:
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()

        self.do("remove the folder", path, remove)

    def sync_folder(self, path: Path) -> None:
        """Makes the names in a folder last."""

        def sync() -> None:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

        self.do("sync the folder", path, sync)
