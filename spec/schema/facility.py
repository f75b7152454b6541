"""Power and cooling: which things fail together."""

from typing import Annotated

from pydantic import Field

from spec.schema.base import Declared, Name


class Rack(Declared):
    """A rack, what feeds it and what cools it. Two feeds from different UPSes survive the loss of either."""

    name: Name
    pdus: Annotated[tuple[Name, ...], Field(min_length=1)]
    cooling_zone: Name = "zone-0"


class Pdu(Declared):
    """A power distribution unit and the UPS behind it."""

    name: Name
    ups: Name
    kw: Annotated[float, Field(gt=0)] = 20.0
    """What it can carry all the time, kW: its breaker less the derating that the code of the place asks for."""


class Facility(Declared):
    """Racks, PDUs and cooling zones."""

    racks: Annotated[tuple[Rack, ...], Field(min_length=1)]
    pdus: Annotated[tuple[Pdu, ...], Field(min_length=1)]
