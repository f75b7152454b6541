"""What every page of HTML is made with: text that is made visible and escaped, numbers in words, the style."""

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from policies.report.visible import value, visible

_LONGEST = 4000
"""Characters of one text that a page prints."""


@cache
def environment(folder: Path) -> Environment:
    """Templates of a folder. Every value that is printed is made visible first, and then escaped."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(value=value, when=when, span=span, count=count)
    return made


@cache
def style() -> Markup:
    """The style of all pages, for light and dark: to be put into the page itself."""
    return Markup(Path(__file__).with_name("style.css").read_text())  # noqa: S704 - the package's own file


def when(instant: datetime) -> str:
    """`30 Nov 2026, 16:02 UTC`."""
    return f"{instant:%-d %b %Y, %H:%M} {instant:%Z}".strip()


def span(length: timedelta) -> str:
    """A span in its two largest units: `6 d 4 h`."""
    seconds = max(0, int(length.total_seconds()))
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((i for i, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"


def count(number: int, word: str) -> str:
    """`1 node`, `1,024 nodes`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _finalize(printed: Any) -> Any:
    if isinstance(printed, Markup):
        return printed
    return visible(str(printed), _LONGEST) if isinstance(printed, str) else printed
