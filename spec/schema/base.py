"""What every declared thing has in common."""

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import core_schema


class Declared(BaseModel):
    """A part of a cluster spec: immutable, and an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False)


class PortRange(str):
    """Ports `first-last`, both included, as in `50000-51000`; one port is written `22`."""

    first: int
    last: int

    def __new__(cls, text: str) -> "PortRange":
        """Reads a range; raises ValueError where it is not one or runs backwards."""
        head, dash, tail = str(text).partition("-")
        try:
            first = int(head)
            last = int(tail) if dash else first
        except ValueError:
            raise ValueError("write a port range as first-last, for example 50000-51000") from None
        if not 1 <= first <= last <= 65535:
            raise ValueError("ports run from 1 to 65535, the first not above the last")
        self = super().__new__(cls, f"{first}-{last}" if dash else f"{first}")
        self.first, self.last = first, last
        return self

    def __len__(self) -> int:
        return self.last - self.first + 1

    def overlaps(self, other: "PortRange") -> bool:
        """Whether a port is in both."""
        return self.first <= other.last and other.first <= self.last

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def read(value: Any) -> PortRange:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError("write a port range as first-last, for example 50000-51000")
            return cls(str(value))

        return core_schema.no_info_plain_validator_function(
            read,
            json_schema_input_schema=core_schema.union_schema([core_schema.str_schema(), core_schema.int_schema()]),
            serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema()),
        )


def _dns_label(text: str) -> str:
    if text.startswith("-") or text.endswith("-"):
        raise ValueError("a name neither starts nor ends with a hyphen")
    return text


Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""One line of words, without control characters."""

Name: TypeAlias = Annotated[
    str, Field(pattern=r"^[a-z0-9-]+$", min_length=1, max_length=40), AfterValidator(_dns_label)
]
"""Lower-case letters, digits and hyphens, as in a host name."""

Gbps: TypeAlias = Annotated[float, Field(gt=0, le=6400)]
"""A link's speed, 10^9 bits a second."""

Mtu: TypeAlias = Annotated[int, Field(ge=1280, le=9216)]
"""Largest IP packet of a network, bytes: 1280 is IPv6's least, 9216 what switches carry at most."""
