"""What a proof says."""

from pydantic import BaseModel, ConfigDict


class Proof(BaseModel):
    """One thing that a design must have, whether it has it, and the numbers that show it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    title: str
    """The promise, in words: `No leaf is oversubscribed beyond the limit`."""
    holds: bool
    numbers: dict[str, int | float | str]
    message: str
    """What was found, in words, whether it holds or not."""
    advice: str
    """What to do where it does not hold."""
    fields: tuple[str, ...]
    """The spec fields that it follows from; the first is the one to blame, as in `nodes[0].nics.fabric`."""
    exception: str | None = None
    """Why the spec accepts that it does not hold."""

    @property
    def accepted(self) -> bool:
        """Whether something may be built on it: it holds, or the spec says why it need not."""
        return self.holds or self.exception is not None
