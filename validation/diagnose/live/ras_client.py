"""Asks NCCL's RAS on this machine: a line protocol on TCP, as `ncclras -f json -v` speaks it.

Source: NCCL's user guide, troubleshooting/ras; nccl src/ras/client.cc (protocol 2).
"""

import os
import socket
import time
from collections.abc import Mapping

from validation.diagnose.live.ras import RasError, parse
from validation.diagnose.live.snapshot import Ras

HOST, PORT = "127.0.0.1", 28028
PROTOCOL = 2
ANSWER_S = 5
"""Seconds that RAS may wait for other processes."""
LIMIT_S = 10.0
"""Of all."""
LARGEST = 64 << 20
"""Bytes. A rank is some 500 of them in each communicator."""


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Where it listens: NCCL_RAS_ADDR of the job's environment, else NCCL's default."""
    host, colon, port = environment.get("NCCL_RAS_ADDR", "").rpartition(":")
    if colon and port.isdecimal() and 0 < int(port) < 65536 and host in ("localhost", "127.0.0.1", "[::1]"):
        return host.strip("[]"), int(port)
    return HOST, PORT


def ask(where: tuple[str, int], limit_s: float = LIMIT_S) -> Ras:
    """What RAS says of the job. Raises RasError, with what to do."""
    end = time.monotonic() + limit_s
    try:
        with socket.create_connection(where, timeout=2.0) as connection:
            lines = _Lines(connection, end)
            hello = lines.say(f"CLIENT PROTOCOL {PROTOCOL}")
            if not hello.upper().startswith("SERVER PROTOCOL"):
                raise RasError(f"{where[0]}:{where[1]} is not NCCL's RAS: {hello[:60]!r}")
            lines.say(f"TIMEOUT {ANSWER_S}")
            if (said := lines.say("SET FORMAT json")) != "OK":
                raise RasError(
                    f"this NCCL's RAS has no JSON ({said[:60]!r}) · `ncclras -v` on the node; NCCL 2.28 has it"
                )
            return parse(lines.rest("VERBOSE STATUS"))
    except ConnectionRefusedError:
        raise RasError(
            f"nothing answers on {where[0]}:{where[1]} · it is there from NCCL 2.24 on, unless NCCL_RAS_ENABLE=0"
        ) from None
    except OSError as wrong:
        raise RasError(f"{where[0]}:{where[1]}: {wrong.strerror or wrong or 'no answer in time'}") from None


class _Lines:
    """Lines to and from a connection until a time is up. Raises OSError, RasError."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self._end, self._held = connection, end, b""

    def say(self, line: str) -> str:
        """Sends a line and gives the next one that comes."""
        self._connection.sendall(line.encode() + b"\n")
        while b"\n" not in self._held:
            if len(self._held) > 4096 or not self._more():
                raise RasError("NCCL's RAS closed the connection, or answers without end")
        told, _, self._held = self._held.partition(b"\n")
        return told.decode("utf-8", "replace").strip()

    def rest(self, line: str) -> str:
        """Sends a line and gives all that comes until the other side closes."""
        self._connection.sendall(line.encode() + b"\n")
        parts, size = [self._held], len(self._held)
        self._held = b""
        while self._more():
            parts.append(self._held)
            size += len(self._held)
            self._held = b""
            if size > LARGEST:
                raise RasError(f"NCCL's RAS answers more than {LARGEST >> 20} MiB")
        return b"".join(parts).decode("utf-8", "replace")

    def _more(self) -> bool:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._connection.settimeout(left)
        more = self._connection.recv(1 << 16)
        self._held += more
        return bool(more)
