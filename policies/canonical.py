"""Digests of data: SHA-256 over RFC 8785 canonical JSON, so that equal data have equal digests everywhere."""

import hashlib
from typing import Any

import rfc8785


def digest(value: Any) -> str:
    """Hexadecimal SHA-256 of JSON data.

    Raises ValueError where RFC 8785 has no form for it: NaN, integers beyond 2^53, lone surrogates.
    """
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()
