"""Text that came from nodes, made safe to look at: nothing invisible, nothing that turns the line around, bounded."""

import json
import unicodedata

from pydantic import JsonValue

LIMIT = 240
"""Characters of one value that a report shows; the run's JSON has the rest."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that show nothing or rule over others: controls, formats (with bidi overrides), surrogates."""


def visible(text: str, limit: int = LIMIT) -> str:
    """The text with every hidden character written as its code, newlines as ⏎, cut with … where it is too long."""
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(_shown(each) for each in text[: limit + 1])
    return f"{shown[:limit]}…" if len(shown) > limit else shown


def value(found: JsonValue, limit: int = LIMIT) -> str:
    """A measured value in words: `gpu-3: 2, gpu-5: 1`."""
    return visible(_words(found, limit), limit)


def _words(found: JsonValue, limit: int) -> str:
    if found is None:
        return ""
    if isinstance(found, str):
        return found
    if isinstance(found, dict):
        pairs = list(found.items())[:limit]
        return ", ".join(
            f"{key}: {_words(each, limit) if isinstance(each, str) else _inner(each)}" for key, each in pairs
        )
    if isinstance(found, list):
        return ", ".join(_words(each, limit) if isinstance(each, str) else _inner(each) for each in found[:limit])
    return _inner(found)


def _inner(found: JsonValue) -> str:
    return f"{found:.6g}" if isinstance(found, float) else json.dumps(found, ensure_ascii=False)


def _shown(character: str) -> str:
    if character == "\n":
        return "⏎"
    if character == "\t":
        return " "
    if unicodedata.category(character) in _HIDDEN:
        return f"⟨{ord(character):04X}⟩"
    return character
