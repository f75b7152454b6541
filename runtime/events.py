"""How the parts of the runtime tell what happened, without knowing who listens."""

from typing import Any, Protocol


class Tell(Protocol):
    """Takes an event by its dotted name, as `checkpoint.committed`, and its fields: plain values with units in names.

    Never raises, never blocks. Telemetry implements it; so does a list in a test.
    """

    def __call__(self, event: str, /, **fields: Any) -> None: ...


def silence(event: str, /, **fields: Any) -> None:
    """For who wants to hear nothing."""
