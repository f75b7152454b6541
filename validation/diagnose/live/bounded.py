"""Reads that may hang or never end: with a limit of time and of bytes, and nobody waits for what cannot be killed.

What reads the memory of a process that is stuck in the kernel can be stuck there too, and then takes no signal.
"""

import contextlib
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MOST_SAID = 1 << 16
"""Bytes of standard error."""
GRACE_S = 2.0
"""Between asking a command to end and ending it."""


class Ran(NamedTuple):
    """`code`: none where it was ended because it was late or said too much (`large`)."""

    code: int | None
    out: bytes
    said: str
    large: bool = False


def run(argv: Sequence[str], limit_s: float, most: int) -> Ran:
    """A command's output, as far as it came. Raises OSError where it cannot be started."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 (for the type checker)
    end, large = time.monotonic() + limit_s, False
    held: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    limits = {process.stdout.fileno(): most, process.stderr.fileno(): MOST_SAID}
    sizes = dict.fromkeys(held, 0)
    out, said = held
    with selectors.DefaultSelector() as ready:
        for each in held:
            ready.register(each, selectors.EVENT_READ)
        while ready.get_map() and not large and (left := end - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                more = os.read(key.fd, 1 << 16)
                if not more:
                    ready.unregister(key.fd)
                sizes[key.fd] += len(more)
                if sizes[key.fd] <= limits[key.fd]:
                    held[key.fd].append(more)
                elif key.fd == out:
                    large = True
    code = _ended(process, max(0.0, end - time.monotonic()) if not large else 0.0)
    process.stdout.close()
    process.stderr.close()
    return Ran(code, b"".join(held[out]), b"".join(held[said]).decode("utf-8", "replace"), large)


def _ended(process: "subprocess.Popen[bytes]", left_s: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(left_s)
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            break
    return None


def within(limit_s: float, read: Callable[[], T], otherwise: T) -> T:
    """What is read, or `otherwise` where it is not read in time; its thread is then left behind."""
    found: list[T] = []
    reader = threading.Thread(target=lambda: found.append(read()), daemon=True)
    reader.start()
    reader.join(limit_s)
    return found[0] if found else otherwise
