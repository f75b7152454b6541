"""Nested state as JSON and tensors: what `state_dict()` gives, written without pickle and read without running code.

JSON alone would turn tuples into lists and number keys into strings, and has no bytes and no infinities. Each of these
is one object with a single key that begins with `$`; a tensor is the name that it is kept under.
"""

import base64
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

JSON = Any
"""What json.dumps takes with allow_nan=False."""

DEEPEST = 64


class ValueKindError(TypeError):
    """A state holds something that is neither data nor a tensor."""


def encode(value: Any, where: str, tensors: "dict[str, Tensor]") -> JSON:
    """The value as JSON; its tensors and numpy arrays are added to `tensors` under `where/...`.

    Raises ValueKindError, with the place, for an object of any other kind, or one nested deeper than 64.
    """
    return _encode(value, where, tensors, 0)


def decode(told: JSON, tensor: "Callable[[str], Tensor]") -> Any:
    """The value back; `tensor` gives the tensor of a name. Raises ValueError for a mark that is not known."""
    if isinstance(told, list):
        return [decode(each, tensor) for each in told]
    if not isinstance(told, dict):
        return told
    marks = [key for key in told if key.startswith("$")]
    if not marks:
        return {key: decode(each, tensor) for key, each in told.items()}
    if len(told) != 1:
        raise ValueError(f"a mark beside other keys: {sorted(told)[:5]}")
    mark, inner = marks[0], told[marks[0]]
    match mark:
        case "$tensor":
            return tensor(str(inner))
        case "$array":
            return tensor(str(inner)).numpy()
        case "$tuple":
            return tuple(decode(each, tensor) for each in inner)
        case "$dict":
            return {_key(decode(key, tensor)): decode(each, tensor) for key, each in inner}
        case "$bytes":
            return base64.b64decode(inner, validate=True)
        case "$float":
            return float(inner)
    raise ValueError(f"unknown mark {mark!r}")


def _key(key: Any) -> Any:
    if isinstance(key, (str, int, float, bool, bytes, tuple, type(None))):
        return key
    raise ValueError(f"{type(key).__name__} is no key")


def _encode(value: Any, where: str, tensors: "dict[str, Tensor]", depth: int) -> JSON:
    import numpy
    import torch

    def inner(each: Any, name: object) -> JSON:
        return _encode(each, f"{where}/{name}", tensors, depth + 1)

    if depth > DEEPEST:
        raise ValueKindError(f"nested deeper than {DEEPEST} · {where} · keep the state flatter")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Enum):
        raise ValueKindError(f"{type(value).__name__} is not data · {where} · keep its value instead")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, torch.Tensor):
        tensors[where] = value.detach()
        return {"$tensor": where}
    if isinstance(value, numpy.generic):
        return _encode(value.item(), where, tensors, depth)
    if isinstance(value, numpy.ndarray):
        if value.dtype.hasobject:
            raise ValueKindError(f"an array of Python objects · {where} · keep numbers")
        tensors[where] = torch.from_numpy(numpy.ascontiguousarray(value))
        return {"$array": where}
    if isinstance(value, tuple):
        return {"$tuple": [inner(each, index) for index, each in enumerate(value)]}
    if isinstance(value, list):
        return [inner(each, index) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: inner(each, key) for key, each in value.items()}
        return {"$dict": [[inner(key, "key"), inner(each, key)] for key, each in value.items()]}
    raise ValueKindError(
        f"{type(value).__name__} is neither data nor a tensor · {where} · "
        "leave it out of state_dict(), or give its numbers and strings"
    )
