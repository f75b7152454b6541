"""How a real receiver is found, built, run and waited for."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

RECEIVERS = Path(__file__).parent / "receivers"
BUILD_LIMIT_S = 2400
START_LIMIT_S = 60.0


@dataclass
class Server:
    """A receiver that runs, and where it listens on 127.0.0.1."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """What it answers, as JSON where it is that."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:  # noqa: S310
            body = answer.read().decode()
        try:
            return json.loads(body)
        except ValueError:
            return body


def until(true: Callable[[], Any], limit_s: float = START_LIMIT_S, pause_s: float = 0.05) -> Any:
    """Waits for a condition and returns what it said. Fails after the limit."""
    end = time.monotonic() + limit_s
    while True:
        try:
            if found := true():
                return found
        except (OSError, urllib.error.URLError, ValueError):
            pass
        if time.monotonic() > end:
            pytest.fail(f"waited {limit_s} s in vain for {true}")
        time.sleep(pause_s)


def listening(process: subprocess.Popen[bytes]) -> int | None:
    """The port that a process chose."""
    assert process.poll() is None, f"{process.args} ended with {process.returncode}"
    ports = [each.laddr.port for each in psutil.Process(process.pid).net_connections("tcp") if each.status == "LISTEN"]
    return ports[0] if ports else None


def run(folder: Path, *command: str, port: int | None = None, ready: str = "") -> Iterator[Server]:
    """Runs a server in a folder until the tests have done with it."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, env={"PATH": os.environ["PATH"], "HOME": str(folder)}
        )
    try:
        server = Server(process, port or until(lambda: listening(process)), folder)
        if ready:
            until(lambda: "ready" in server.get(ready))
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def debian(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.fail(f"{program} is missing · ./setup --lab installs the package {package}")
    return found


def built(name: str) -> str:
    """A receiver built from pinned Go modules; takes minutes the first time."""
    made = subprocess.run([RECEIVERS / "install", name], stdout=subprocess.PIPE, text=True, timeout=BUILD_LIMIT_S)
    assert made.returncode == 0, f"{name} could not be built, see above"
    return made.stdout.strip()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
