"""Between the engine's property values and plain JSON data. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc


class Unknown:
    """A value that only exists once another resource does: previews have such."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()


def plain(value: PropertyValue) -> Any:
    """The JSON value of a property; whole numbers are ints again, as the wire has only floats."""
    inner = value.value
    # The SDK has a type for unknown values but leaves them as the wire's mark, and cannot write the type.
    if inner == rpc.UNKNOWN:
        return UNKNOWN
    if isinstance(inner, bool) or inner is None or isinstance(inner, str):
        return inner
    if isinstance(inner, float):
        return int(inner) if inner.is_integer() else inner
    if isinstance(inner, Mapping):
        return {key: plain(each) for key, each in inner.items()}
    if isinstance(inner, Sequence):
        return [plain(each) for each in inner if isinstance(each, PropertyValue)]
    raise TypeError(f"a property of type {value.type.value} is not data")


def wrapped(value: Any) -> PropertyValue:
    """The property of a JSON value."""
    if value is UNKNOWN:
        return PropertyValue(rpc.UNKNOWN)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return PropertyValue(value)
    if isinstance(value, int | float):
        return PropertyValue(float(value))
    if isinstance(value, Mapping):
        return PropertyValue({str(key): wrapped(each) for key, each in value.items()})
    if isinstance(value, Sequence):
        return PropertyValue([wrapped(each) for each in value])
    raise TypeError(f"{type(value).__name__} is not JSON data")


def plain_map(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """All properties of a resource as data; the engine's own, which begin with two underscores, are left out."""
    return {key: plain(each) for key, each in values.items() if not key.startswith("__")}


def wrapped_map(values: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """Data as all properties of a resource."""
    return {key: wrapped(each) for key, each in values.items()}


def holds_unknown(value: Any) -> bool:
    """Whether a value is unknown or has something unknown in it."""
    if isinstance(value, Mapping):
        return any(holds_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(holds_unknown(each) for each in value)
    return value is UNKNOWN
