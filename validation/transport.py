"""Runs commands on nodes over the user's own OpenSSH: its configuration, jump hosts and agents are honoured.

A node that cannot be reached raises `Unreachable` with ssh's own words; a command that fails there does not.
"""

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes of output that are kept of one command; one that prints more is ended."""

ERRORS_LIMIT = 64 * 1024

TIMEOUT_S = 60.0

WIDTH = 128
"""Commands that run at once where more may wait: each is an ssh of its own."""

LINGER_S = 2.0
"""How long the streams of a process are read after its end."""

SSH_FAILED = 255
"""What ssh ends with where it could not run the command (ssh(1)); a command that ends with it is told as 254."""

PUT = """
umask 022
folder=$(dirname "$1") && mkdir -p "$folder" && part=$(mktemp "$1.XXXXXX") || exit 1
if cat >"$part" && printf '%s  %s\\n' "$2" "$part" | sha256sum --check --status && chmod 644 "$part"; then
    exec mv -f "$part" "$1"
fi
rm -f "$part"
echo "what arrived is not what was sent" >&2
exit 1
"""


class Unreachable(Exception):  # noqa: N818
    """A node could not be reached, in ssh's own words."""


@dataclass(frozen=True)
class Completed:
    """A command that ran on a node. `status` is none where it was ended because of `limit`."""

    node: str
    status: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None = None
    """The limit that it broke, in words: `no end within 60 s`."""

    def last_words(self) -> str:
        """What it complained of last, for people: one line."""
        lines = [line for line in self.stderr.decode(errors="replace").splitlines() if line.strip()]
        return "; ".join(filter(None, (self.limit, lines[-1].strip()[:500] if lines else None))) or "it said nothing"


class Transport(Protocol):
    """How commands reach nodes."""

    as_root: tuple[str, ...]
    """What is put before a command that needs root."""

    async def run(self, node: str, argv: Sequence[str], stdin: bytes = b"", timeout: float = TIMEOUT_S) -> Completed:
        """Runs a command on a node. Raises Unreachable where the node does not answer."""
        ...


class Ssh:
    """Over OpenSSH, at most `width` commands at once; others wait for their turn.

    What must run together, as the ranks of a job, needs a width that holds all of it: else it waits for itself.

    Args: `config`, the ssh configuration that knows the nodes by name. It never asks for a password, and it uses a
    shared connection that the user's configuration names but leaves none behind.
    """

    as_root: tuple[str, ...] = ("sudo", "-n")

    def __init__(self, config: Path, width: int = WIDTH) -> None:
        self._argv = ["ssh", "-F", str(config), "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no"]
        self._argv += ["-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
        self._places = asyncio.Semaphore(width)

    async def run(self, node: str, argv: Sequence[str], stdin: bytes = b"", timeout: float = TIMEOUT_S) -> Completed:
        """Runs a command on a node; its time starts when it is its turn."""
        # ssh hands one text to the user's shell on the node; 255 is kept for ssh itself.
        text = f"{shlex.join(argv)} || exit $(( $? == {SSH_FAILED} ? 254 : $? ))"
        async with self._places:
            done = await execute(node, [*self._argv, "--", node, text], stdin, timeout)
        if done.status == SSH_FAILED:
            raise Unreachable(done.last_words())
        return done


class Local:
    """Runs everything on this machine, whatever node is named: for tests, and for a node that examines itself."""

    def __init__(self) -> None:
        self.as_root: tuple[str, ...] = () if os.geteuid() == 0 else ("sudo", "-n")

    async def run(self, node: str, argv: Sequence[str], stdin: bytes = b"", timeout: float = TIMEOUT_S) -> Completed:
        """Runs a command here."""
        return await execute(node, list(argv), stdin, timeout)


async def put(transport: Transport, node: str, content: bytes, path: str, timeout: float = TIMEOUT_S) -> None:
    """Writes a file on a node, owned by root and readable by all: all of it or nothing.

    Raises Unreachable, or OSError where the node does not take it.
    """
    digest = hashlib.sha256(content).hexdigest()
    done = await transport.run(node, [*transport.as_root, "sh", "-c", PUT, "put", path, digest], content, timeout)
    if done.status != 0:
        raise OSError(f"{node} did not take {path}: {done.last_words()}")


async def execute(node: str, argv: list[str], stdin: bytes, timeout: float) -> Completed:
    """Runs a local command with a deadline and bounded output, and ends all of it when either is passed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    out, err = bytearray(), bytearray()
    work = [
        asyncio.create_task(each)
        for each in (
            _feed(process.stdin, stdin),
            _read(process.stdout, out, OUTPUT_LIMIT),
            _read(process.stderr, err, ERRORS_LIMIT),
        )
    ]
    limit = None
    try:
        async with asyncio.timeout(timeout):
            await _ended(process, work)
    except TimeoutError:
        limit = f"no end within {timeout:g} s"
    except OverflowError as error:
        limit = str(error)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LINGER_S)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to let the streams go
    return Completed(node, None if limit else process.returncode, bytes(out), bytes(err), limit)


async def _ended(process: asyncio.subprocess.Process, work: list[asyncio.Task[None]]) -> None:
    """Waits until a process has ended and its output is read. Raises OverflowError where there is too much of it.

    What it left in the background may hold its streams open for ever: that is waited for only briefly.
    """
    while process.returncode is None and not all(task.done() for task in work):
        await asyncio.wait([each for each in work if not each.done()], timeout=0.5, return_when="FIRST_COMPLETED")
        _raise_failures(work)
    await asyncio.wait(work, timeout=LINGER_S)
    _raise_failures(work)
    if process.returncode is None:
        await process.wait()


def _raise_failures(work: list[asyncio.Task[None]]) -> None:
    for task in work:
        if task.done():
            task.result()


async def _feed(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _read(stream: asyncio.StreamReader | None, into: bytearray, limit: int) -> None:
    while stream and (part := await stream.read(65536)):
        into += part[: limit - len(into)]
        if len(into) >= limit:
            raise OverflowError(f"more than {limit} bytes of output")
