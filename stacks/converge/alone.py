"""One converge run at a time on a cluster, and nothing of an earlier one beside it.

Ansible's workers have sessions of their own and live on when the run that began them is killed: they would change nodes
under the feet of the next.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HOME = "ANSIBLE_HOME"
"""The variable by which all processes of a run are known: it names a folder of the cluster, and they inherit it."""

Say = Callable[[str, bool], None]


ENDING_S = 10.0
"""Seconds in which a killed process is gone; one that waits for a disk may take longer."""


class BusyError(Exception):
    """Another run is at work, and was for as long as this one had patience, or what it left cannot be ended."""


@contextlib.contextmanager
def alone(folder: Path, say: Say, patience_s: float, stopped: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Waits for another run on the cluster whose Ansible folder this is; ends what earlier ones left, and this one.

    Raises BusyError after `patience_s` seconds, or once `stopped` says so.
    """
    with (folder / "lock").open("ab") as lock:
        _take(lock.fileno(), say, time.monotonic() + patience_s, stopped)
        end_left(folder)
        try:
            yield
        finally:
            end_left(folder)


def end_left(folder: Path) -> None:
    """Kills all processes of runs in this folder, and those that they start meanwhile. Not beside another run.

    Raises BusyError where they do not go.
    """
    until = time.monotonic() + ENDING_S
    while found := [each for each in _processes() if _is_of(each, folder)]:
        if time.monotonic() >= until:
            raise BusyError(f"processes {found} of an earlier converge run do not end · {folder} · end them by hand")
        for each in found:
            _kill(each, folder)
        time.sleep(0.05)


def environment(folder: Path) -> dict[str, str]:
    """What marks the processes of a run in this folder."""
    return {HOME: str(folder / "home")}


def _take(lock: int, say: Say, until: float, stopped: Callable[[], bool]) -> None:
    told = False
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopped() or time.monotonic() >= until:
                raise BusyError("another run converges this cluster · wait for it, or end it") from None
        if not told:
            say("another run converges this cluster: waiting for it", True)
        told = True
        time.sleep(0.5)


def _processes() -> list[int]:
    numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [each for each in numbers if each != os.getpid()]


def _is_of(process: int, folder: Path) -> bool:
    (mark,) = (f"{key}={value}".encode() for key, value in environment(folder).items())
    try:
        return mark in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended, or is another user's


def _kill(process: int, folder: Path) -> None:
    with contextlib.suppress(OSError):  # it has ended
        handle = os.pidfd_open(process)
        try:
            if _is_of(process, folder):  # the number may be another's by now
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
