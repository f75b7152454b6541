"""Things built once and kept by the digest of their recipe, in a folder that appears whole or not at all."""

import fcntl
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

from spec.document import read

Say = Callable[[str], None]
"""Tells a person one line of progress."""


class BuildError(RuntimeError):
    """Something could not be built. The text says what, where and what to do."""


def recipe_digest(files: Iterable[Path], *, relative_to: Path) -> str:
    """SHA-256 of the names, run bits and contents of files, hexadecimal: whole, because certificates name it."""
    found = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        run = bool(path.stat().st_mode & 0o100)
        found.update(f"{path.relative_to(relative_to)}\0{run:d}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def recipe_files(*folders: Path) -> list[Path]:
    """Every file below some folders, without what Python leaves there."""
    return [path for each in folders for path in each.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def read_recipe(path: Path) -> dict[str, Any]:
    """What a recipe's YAML file says. Raises BuildError with every fault in it."""
    document = read(path)
    if document.faults:
        raise BuildError(
            "\n".join(
                f"{each.field + ': ' if each.field else ''}{each.what} · {path}:{each.line} · {each.advice}"
                for each in document.faults
            )
        )
    found: dict[str, Any] = document.data
    return found


def keep(target: Path, make: Callable[[Path, "Builder"], None], say: Say) -> Path:
    """Makes `target`, a folder, unless it is there.

    `make` fills a folder beside it, which is renamed when it is done. One builder works at a time: a second waits,
    and finds the first one's result. What an interrupted build left is removed. Raises BuildError.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent / ".lock", say) as lock:
        if target.is_dir():
            return target
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        make(partial, Builder(log=target.with_name(f"{target.name}.log"), lock=lock, say=say))
        partial.rename(target)
    return target


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[int]:
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


class Builder:
    """Runs a build's commands: their output goes to a log, and they end when the build does."""

    def __init__(self, log: Path, lock: int, say: Say) -> None:
        self.log = log
        self.say = say
        self._lock = lock
        log.unlink(missing_ok=True)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        line: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Runs a command and gives each line it prints to `line`. Raises BuildError where it fails.

        What it makes has the same modes whoever builds: the digest of a recipe says nothing of a umask.
        The command is killed when this process dies, and holds the build's lock until it has ended: a build started
        after a killed one never meets its leftovers at work.
        """
        words = [str(each) for each in command]
        last: deque[str] = deque(maxlen=5)
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
        with self.log.open("a") as log:
            try:
                process = Popen(
                    ["setpriv", "--pdeathsig", "KILL", *words],
                    stdout=PIPE, stderr=STDOUT, text=True, errors="replace",
                    env=environment, cwd=cwd, pass_fds=[self._lock], umask=0o022,
                )  # fmt: skip
            except FileNotFoundError as error:
                raise BuildError(f"no program {error.filename} · PATH · install util-linux") from error
            with process:
                assert process.stdout  # noqa: S101 - a pipe was asked for
                for text in process.stdout:
                    log.write(text)
                    last.append(text.rstrip())
                    line(text.rstrip())
        if process.returncode:
            raise BuildError(
                f"{words[0]} ended with status {process.returncode}: {' / '.join(last)} · {self.log} · "
                "read the log, mend what it names, and build again"
            )
