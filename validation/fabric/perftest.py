"""ib_write_bw of perftest: the RDMA ports that it uses, its command lines, and what it says. Pure."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policies.measurement import Examination
from spec.plan import Node

TOOL = "ib_write_bw"
SECONDS = 6
MARGIN = 1
"""How long a test sends, and how much of that at its start and at its end does not count."""
WINDOW = SECONDS - 2 * MARGIN
SIZE = 65536
"""Bytes of a message."""
EARLY = "Couldn't connect"
"""What the client says while nobody listens."""


class Port(BaseModel):
    """An RDMA port: `rxe_rail0`, 1. A node says what it is called, so nothing but a name is taken for one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,40}$")]
    port: Annotated[int, Field(ge=1, le=255, strict=True)]


def ports(examinations: Mapping[str, Examination], nodes: Mapping[str, Node], rail: int) -> dict[str, Port]:
    """The RDMA port of each node on a rail as the node suite found it; no entry where it found none."""
    found: dict[str, Port] = {}
    for name, node in nodes.items():
        interface, examination = node.interface(f"rail-{rail}"), examinations.get(name)
        told = examination.devices("rdma.ports") if examination else None
        if interface is None or told is None:
            continue
        try:
            found[name] = Port.model_validate(told.get(interface.name))
        except ValidationError:
            continue
    return found


def server(port: Port, tcp: str) -> list[str]:
    """Serves one test; both ends say by TCP where their memory is."""
    return [TOOL, "-d", port.device, "-i", str(port.port), "-p", tcp, *_same()]


def client(port: Port, tcp: str, address: str) -> list[str]:
    """Writes into the server's memory."""
    return [*server(port, tcp), address]


def _same() -> list[str]:
    """What both ends must be told alike."""
    return ["-s", str(SIZE), "-D", str(SECONDS), "-f", str(MARGIN), "-F", "--report_gbits"]


def read(output: bytes, errors: bytes) -> tuple[float | None, str]:
    """Gb/s of the client's report, or none and why.

    They are the messages that it completed within the window. Its own average is the same, but rests on the processor's
    frequency, and is 0 where that cannot be told: on emulated processors.
    """
    text = output.decode(errors="replace")
    rows = re.findall(rf"^[ \t]*{SIZE}[ \t]+(\d{{1,15}})(?:[ \t]+[\d.]+){{3}}[ \t]*$", text, re.MULTILINE)
    if len(rows) != 1:
        said = [line.strip() for line in (errors.decode(errors="replace") or text).splitlines() if line.strip()]
        return None, f"ib_write_bw gave no result: {'; '.join(said[-3:])[:300]}"
    return int(rows[0]) * SIZE * 8 / WINDOW / 1e9, ""
