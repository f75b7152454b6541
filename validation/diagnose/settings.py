"""What to set to learn more at the next start: by symptom, with what it costs. Data in `settings.yaml`."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from policies.reading import read
from validation.diagnose.kinds import Symptom

PATH = Path(__file__).with_suffix(".yaml")

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class Setting(BaseModel):
    """A variable of the job's environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variable: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$")]
    value: Annotated[str, StringConstraints(pattern=r"^[\w.,:%=-]+$")]
    symptoms: Annotated[tuple[Symptom, ...], Field(min_length=1)]
    why: _Text
    cost: _Text
    sources: Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+:\S+$")], ...], Field(min_length=1)]


def load_settings() -> tuple[Setting, ...]:
    """All of them, in the order in which they are set."""
    return read(PATH, tuple[Setting, ...], list)


def of(symptom: Symptom) -> tuple[Setting, ...]:
    """Those of a symptom; there may be none."""
    return tuple(each for each in load_settings() if symptom in each.symptoms)
