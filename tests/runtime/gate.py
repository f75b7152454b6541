"""Holds ranks at a place in their training until the test lets go, so that a signal comes there and nowhere else.

A place is a phase and a step, as `forward:4`. It is held while the test has the lock on the file of that name in the
job's folder. A rank that comes to it says so in its log, and waits for a share of the lock.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

step = 0
"""The step under way in this rank; its script keeps it."""


@contextmanager
def held(folder: Path, *places: str) -> Iterator[None]:
    """In the test: ranks in `folder` that come to these places stay there until the end."""
    with ExitStack() as locks:
        for place in places:
            path = folder / f"{place}.held"
            fcntl.flock(locks.enter_context(path.open("w")), fcntl.LOCK_EX)
            locks.callback(path.unlink)
        yield


def hold(phase: str, at: int | None = None, *, computing: bool = False, only: int | None = None) -> None:
    """In a rank: this is the phase of the step under way, or of step `at`.

    Where it is held, waits in a system call or computing; where it is `only` one rank that waits, the others go on.
    """
    place = f"{phase}:{step if at is None else at}"
    with suppress(FileNotFoundError), Path(f"{place}.held").open() as lock:
        os.write(1, f"held in {place}\n".encode())
        waits = only is None or only == int(os.environ["RANK"])
        while waits:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | (fcntl.LOCK_NB if computing else 0))
                waits = False
            except BlockingIOError:
                _compute()


def hold_writes() -> None:
    """In a rank: makes `write` a phase, in which a save's file is written and not yet made to last."""
    if not list(Path().glob("write:*.held")):
        return
    real = os.fsync

    def fsync(fd: int) -> None:
        if saved := re.search(r"/\.step-(\d+)\.", str(Path(f"/proc/self/fd/{fd}").readlink())):
            hold("write", int(saved[1]))
        real(fd)

    os.fsync = fsync  # type: ignore[assignment]


def _compute() -> None:
    import torch

    torch.ones(64, 64) @ torch.ones(64, 64)
