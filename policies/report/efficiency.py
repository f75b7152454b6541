"""What the report of a cluster shows of GPU time, where `muster cost` put its figures beside the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup


@dataclass(frozen=True)
class Figure:
    """One figure in words: what it is, how much, and over what it was measured."""

    label: str
    value: str
    note: str
    beside: str = ""
    """A second figure, smaller."""


@dataclass(frozen=True)
class Efficiency:
    """GPU time from `begin` to `end`. All words are escaped by the page; `picture`, `legend` and `style` are Markup."""

    begin: datetime
    end: datetime
    figures: Sequence[Figure]
    picture: Markup
    """GPU-hours by cause, a bar a week. Empty where no job held a GPU."""
    legend: Markup
    style: Markup
    slowest: Sequence[str]
    """Nodes that ranks waited for, in words."""
    problems: int
    """Of what was asked for, how much could not be counted."""
    page: str
    """The file with all of it, beside the report."""
