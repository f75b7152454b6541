"""The machine that the suite runs on: testinfra's local host, with a time limit and bounded output for each command.

The only module that knows testinfra.
"""

import contextlib
import contextvars
import io
import json
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import testinfra.host  # type: ignore[import-untyped]
from testinfra.backend.base import CommandResult  # type: ignore[import-untyped]
from testinfra.backend.local import LocalBackend  # type: ignore[import-untyped]

from validation.node.measure import LIMIT_S, Json, Unmeasurable

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that one command may print, or one file may hold."""

_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline")

T = TypeVar("T")
S = TypeVar("S")


class CommandFailed(Exception):  # noqa: N818
    """A command ended with an exit status that was not expected."""


def seconds_left() -> float:
    """How long the measurement that is being taken may still last."""
    return max(0.0, _deadline.get(time.monotonic() + LIMIT_S) - time.monotonic())


def set_deadline(seconds: float) -> None:
    """Gives the measurement of this thread so many seconds."""
    _deadline.set(time.monotonic() + seconds)


class Host:
    """What measurement functions ask of the machine.

    Args: `expectations`, what the spec expects of this node, by dotted name.
    """

    def __init__(self, node: str, expectations: Mapping[str, Json] | None = None) -> None:
        self.node = node
        self.expectations = dict(expectations or {})
        backend = _Bounded()
        self.testinfra = testinfra.host.Host(backend)
        backend.set_host(self.testinfra)
        self._known: dict[object, tuple[Any, Exception | None]] = {}

    def expected(self, name: str, kind: type[T]) -> T:
        """An expectation. Raises Unmeasurable where the spec has none of that name, TypeError where it is another."""
        if name not in self.expectations:
            raise Unmeasurable(f"the spec expects no {name} of this node")
        value = self.expectations[name]
        if not isinstance(value, kind):
            raise TypeError(f"the expectation {name} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def ask(self, *argv: str) -> CommandResult:
        """A command's result, whatever its exit status. Raises Unmeasurable where it is not installed."""
        result = self.testinfra.run(shlex.join(argv))
        if result.rc == 127:
            raise Unmeasurable(f"{argv[0]} is not installed")
        return result

    def run(self, *argv: str) -> str:
        """A command's output. Raises CommandFailed with what it complained of where it fails."""
        result = self.ask(*argv)
        if result.rc != 0:
            told = (result.stderr.strip() or result.stdout.strip())[:500]
            raise CommandFailed(f"{shlex.join(argv)[:200]} ended with {result.rc}: {told or 'it said nothing'}")
        return str(result.stdout)

    def run_json(self, *argv: str) -> Json:
        """A command's output, read as JSON. Raises ValueError where it is none."""
        return json.loads(self.run(*argv))

    def read(self, path: str | Path) -> str:
        """A file's text, without blanks at its ends. Raises Unmeasurable where there is no such file."""
        try:
            with Path(path).open("rb", buffering=0) as file:
                data = b"".join(_parts(file))
        except FileNotFoundError:
            raise Unmeasurable(f"{path} does not exist") from None
        return data.decode(errors="replace").strip()

    def once(self, function: Callable[["Host"], T]) -> T:
        """What a function says of this host, asked once in a run: its answer is kept, and so is its failure."""
        if function not in self._known:
            try:
                self._known[function] = (function(self), None)
            except Exception as error:
                self._known[function] = (None, error)
        value, failure = self._known[function]
        if failure is not None:
            raise failure
        answer: T = value
        return answer

    def together(self, function: Callable[[S], T], items: Iterable[S], width: int = 32) -> list[T]:
        """The function of each item, at most `width` at once, all within the measurement's time."""
        with ThreadPoolExecutor(max_workers=width) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
            return [job.result() for job in jobs]

    def in_child(self, function: Callable[[], Json]) -> Json:
        """A function's JSON value, computed in a child process that is given up when the time is over.

        For what may hang in the kernel where no signal reaches it, as on a stale mount. Raises TimeoutError then, and
        OSError with the child's own words where the function failed.
        """
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _answer(function, reader, writer)
        os.close(writer)
        try:
            told = _read_until(reader, seconds_left() * 0.9)
        finally:
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _reap(child)
        if told is None:
            raise TimeoutError("no answer: the operation hangs in the kernel")
        answer = json.loads(told or b'{"error": "the child process died"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["value"]


def _parts(file: io.FileIO) -> Iterator[bytes]:
    """A file in small parts: the kernel sets aside what is asked for, in /proc/sys at once."""
    size = 0
    while part := file.read(65536):
        size += len(part)
        if size > OUTPUT_LIMIT:
            raise OverflowError(f"{file.name} holds more than {OUTPUT_LIMIT} bytes")
        yield part


def _answer(function: Callable[[], Json], reader: int, writer: int) -> None:
    """The child's whole life. It lets go of the suite's own streams first, lest it hold the connection open."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(reader)
        try:
            told = json.dumps({"value": function()})
        except Exception as error:
            told = json.dumps({"error": f"{type(error).__name__}: {error}"[:500]})
        data = told.encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _read_until(descriptor: int, seconds: float) -> bytes | None:
    """All that comes until the end, or none where the time is over first."""
    end = time.monotonic() + seconds
    told = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            part = os.read(descriptor, 65536)
            if not part:
                return told
            told += part
    return None


def _reap(child: int) -> None:
    """Collects a killed child, but does not wait for one that hangs in the kernel."""
    for pause in (0.0, 0.001, 0.01, 0.1):
        time.sleep(pause)
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                continue
        return


class _Bounded(LocalBackend):  # type: ignore[misc]
    """testinfra's local backend, with a time limit and bounded output, and without its question for the encoding."""

    def get_encoding(self) -> str:
        return "utf-8"

    def decode(self, data: bytes) -> str:
        return data.decode(errors="replace")

    def run_local(self, command: str, *args: str) -> CommandResult:
        text = self.encode(self.quote(command, *args))
        process = subprocess.Popen(
            [b"/bin/sh", b"-c", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = _collect(process, seconds_left() * 0.9)
            return self.result(process.returncode, text, stdout, stderr)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise type(error)(f"{error}: {command[:200]}") from None


def _collect(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bytes]:
    """What a process prints, until it ends. Raises TimeoutError or OverflowError past its limits."""
    end = time.monotonic() + seconds
    told: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in told:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no end within {seconds:.1f} s")
            for key, _ in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fileobj)
                told[key.fileobj] += part
            if sum(map(len, told.values())) > OUTPUT_LIMIT:
                raise OverflowError(f"more than {OUTPUT_LIMIT} bytes of output")
    for stream in told:
        stream.close()
    try:
        process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no end within {seconds:.1f} s") from None
    stdout, stderr = told.values()
    return bytes(stdout), bytes(stderr)
