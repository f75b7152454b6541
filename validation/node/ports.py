"""Who listens, against what the spec lets in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from validation.node.host import Host
from validation.node.measure import measure


@dataclass(frozen=True, order=True)
class Listener:
    """A socket that waits for strangers. `address` is `*` for all of them, `process` a name where it is known."""

    protocol: str
    port: int
    address: str
    process: str | None

    @property
    def loopback(self) -> bool:
        """Whether only the node itself can reach it."""
        return self.address != "*" and ip_address(self.address).is_loopback

    def __str__(self) -> str:
        return f"{self.protocol}/{self.port}@{self.address}"


@measure("ports.listening", source="ss -lntup")
def listening(host: Host) -> list[str]:
    """Every listening socket, as `tcp/22@0.0.0.0`."""
    return sorted({str(each) for each in host.once(listeners)})


@measure("ports.unexpected", source="ss -lntup")
def unexpected(host: Host) -> list[str]:
    """Sockets that others can reach and that the spec lets nobody in for, as `tcp/8080@0.0.0.0 (python3)`."""
    allowed = [*host.expected("ports.open", list), f"tcp/{host.expected('ports.jobs', str)}"]
    return surplus(host.once(listeners), allowed)


def listeners(host: Host) -> list[Listener]:
    """What `ss` lists."""
    return read_sockets(host.run("ss", "-Hlntup"))


def read_sockets(told: str) -> list[Listener]:
    """The sockets in `ss -Hlntup`: `tcp LISTEN 0 128 127.0.0.53%lo:53 0.0.0.0:* users:(("sshd",pid=1,fd=3))`."""
    found = []
    for line in told.splitlines():
        protocol, _, _, _, local, _, *rest = line.split(maxsplit=6)
        address, _, port = local.rpartition(":")
        name = re.search(r'\(\("([^"]{1,64})"', rest[0]) if rest else None
        address = address.partition("%")[0].strip("[]").removeprefix("::ffff:")
        found.append(Listener(protocol, int(port), address or "*", name.group(1) if name else None))
    return found


def surplus(found: Sequence[Listener], allowed: Sequence[str]) -> list[str]:
    """Of what listens to others than the node itself, what none of `allowed` (`tcp/22`, `tcp/6800-7300`) covers."""
    spans = []
    for each in allowed:
        protocol, _, ports = each.partition("/")
        first, _, last = ports.partition("-")
        spans.append((protocol, int(first), int(last or first)))
    strange = {
        f"{each} ({each.process})" if each.process else str(each)
        for each in found
        if not each.loopback
        and not any(each.protocol == protocol and first <= each.port <= last for protocol, first, last in spans)
    }
    return sorted(strange)
