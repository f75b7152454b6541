"""Ending the process with a code that says what happened, whatever else still hangs on it.

Python ends by joining threads, running what was registered with atexit, and taking modules apart. Each of these can
hang (a thread in a broken collective, a process group's destructor, a data-loader worker that is joined), and the last
gives signals their fatal default back. So the code is given to the system right after the atexit functions, and by a
guard if that takes too long.
"""

import atexit
import contextlib
import logging
import multiprocessing.util  # registers its own atexit function, which must run after this module's
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from runtime.exits import Exit

_leaving: tuple[int, Exit] | None = None


def leave(exit: Exit, limit_s: float = 10.0) -> NoReturn:
    """Ends the process with the code: as sys.exit would, but within `limit_s` seconds. For the main thread."""
    global _leaving
    _leaving = (os.getpid(), exit)
    threading.Thread(target=_guard, args=(exit, limit_s), name="leave guard", daemon=True).start()
    reap()
    raise SystemExit(int(exit))


def end(exit: Exit) -> NoReturn:
    """Ends the process with the code at once, from any thread. Only the standard streams are flushed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(int(exit))


def reap() -> None:
    """Kills the daemonic child processes: data-loader workers, which ignore SIGTERM, so that nobody waits for them."""
    children = [each for each in multiprocessing.active_children() if each.daemon]
    if children and threading.current_thread() is threading.main_thread():
        # torch's handler would raise an error for each of them.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in children:
        with contextlib.suppress(OSError, ValueError):
            child.kill()


def _guard(exit: Exit, limit_s: float) -> None:
    time.sleep(limit_s)
    os._exit(int(exit))


@atexit.register
def _last() -> None:
    reap()
    if _leaving is not None and _leaving[0] == os.getpid():
        with contextlib.suppress(Exception):
            logging.shutdown()
        end(_leaving[1])
