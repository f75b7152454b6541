"""That a node was refused, when and why: no older certificate of it counts afterwards, wherever a copy was kept."""

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Refusal(BaseModel):
    """What an examination found against a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    at: AwareDatetime
    """When: a certificate that was issued by then does not count, one that was issued later does."""
    why: str
    """In words for people."""
