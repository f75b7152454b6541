"""The Python stacks of a process, by py-spy, which reads them from outside.

It reads memory and does not stop the process (`--nonblocking`): of a process that stands still the stacks are exact; of
one that runs a frame may be wrong. Stopping it would be exact too, and could not be undone while one of its threads is
in the kernel and cannot be interrupted: a job that hangs for a moment in storage would stand still for good.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from validation.diagnose.live.bounded import run
from validation.diagnose.live.snapshot import MOST_FRAMES, MOST_THREADS, Frame, Thread

LIMIT_S = 8.0
"""Of one reading; usually it takes some hundredths of a second."""
LARGEST = 8 << 20
"""Bytes of one answer."""
TRIES = 3
"""A process that runs changes while it is read."""

_REFUSED = ("Permission denied", "Operation not permitted", "EPERM", "os error 1)", "os error 13)")


class NoStack(Exception):  # noqa: N818 - as other reasons
    """Why there is none, and what to do."""


def tool() -> str | None:
    """py-spy of this environment, else of the path."""
    own = Path(sys.executable).parent / "py-spy"
    return str(own) if own.is_file() else shutil.which("py-spy")


def stacks(pid: int, native: bool = False, limit_s: float = LIMIT_S) -> tuple[Thread, ...]:
    """The threads of a process. Raises NoStack.

    `native`: functions of C too; then the process is stopped while they are looked up, which may take seconds.
    """
    program = tool()
    if program is None:
        raise NoStack("py-spy is not installed · pip install py-spy, in the environment that muster runs in")
    argv = [program, "dump", "--json", "--pid", str(pid), "--native" if native else "--nonblocking"]
    said = ""
    for _ in range(TRIES):
        try:
            ran = run(argv, limit_s, LARGEST)
        except OSError as wrong:
            raise NoStack(f"py-spy cannot be run: {wrong.strerror} · look at {program}") from None
        if ran.code is None:
            raise NoStack("py-spy says too much" if ran.large else f"py-spy has not ended in {limit_s:g} s · try again")
        if ran.code == 0:
            try:
                return read(ran.out, pid)
            except ValueError as wrong:
                why = str(wrong)[:80]
                raise NoStack(f"py-spy said what is not understood: {why} · another version of it?") from None
        said = ran.said
        if any(each in said for each in _REFUSED):
            raise NoStack(
                "reading another process's memory is not permitted · run it as the job's user or root; in a container "
                "give it SYS_PTRACE; on the host kernel.yama.ptrace_scope=0"
            )
    lines = [each.strip() for each in said.splitlines() if each.strip()]
    raise NoStack(f"py-spy: {' '.join(lines[:3])[:200] or 'it said nothing'} · is it a Python process?")


def read(raw: bytes, pid: int) -> tuple[Thread, ...]:
    """py-spy's JSON. Raises ValueError."""
    told = json.loads(raw)
    if not isinstance(told, list):
        raise ValueError("no list of threads")
    threads = [_thread(each, pid) for each in told[:MOST_THREADS] if isinstance(each, dict)]
    return tuple(sorted(threads, key=lambda each: not each.main))


def _thread(told: dict[str, Any], pid: int) -> Thread:
    frames = told.get("frames")
    main = told.get("os_thread_id") == pid or (
        told.get("os_thread_id") is None and told.get("thread_name") == "MainThread"
    )
    return Thread(
        name=str(told.get("thread_name") or ""),
        main=main,
        interpreter=told.get("owns_gil") is True,
        frames=tuple(
            Frame(name=str(each.get("name", "")), file=str(each.get("filename", "")), line=_line(each.get("line")))
            for each in (frames if isinstance(frames, list) else [])[:MOST_FRAMES]
            if isinstance(each, dict)
        ),
    )


def _line(told: object) -> int:
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 1 << 31 else 0
