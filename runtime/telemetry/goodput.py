"""What a run was worth: the time of the steps that are in its history at the end, over all time since its first start.

Pure: a ledger is folded from the entries of a journal that outlives every restart. A step counts once, as it was done
last. Work that was done and then undone (a crash after the last checkpoint, a roll-back, a skipped update) is lost.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SEGMENTS_LIMIT = 2000


class Entry(BaseModel):
    """What is common to the journal's lines. `at_s` is since the epoch."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    at_s: float = Field(ge=0)


class Started(Entry):
    """An attempt began."""

    kind: Literal["started"] = "started"
    attempt: str = Field(max_length=256)
    world: int = Field(ge=1)


class Stepped(Entry):
    """Steps `first` to `last` were done, `useful` of them with an update, in `seconds` together."""

    kind: Literal["stepped"] = "stepped"
    first: int = Field(ge=0)
    last: int = Field(ge=0)
    useful: int = Field(ge=0)
    seconds: float = Field(ge=0)
    parts: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict, max_length=32)
    """Seconds of rank 0 in each phase of these steps. A phase that is not there was not measured in them."""


class Back(Entry):
    """The state after `step` was restored: what came later is undone."""

    kind: Literal["back"] = "back"
    step: int = Field(ge=-1)


class Beat(Entry):
    """The attempt still ran, or ended here."""

    kind: Literal["beat"] = "beat"
    gpu_busy: float | None = Field(default=None, ge=0, le=1)
    """Share of the last moment with a kernel running (NVML), mean over the GPUs of rank 0's node. None: not known."""


class Waited(Entry):
    """In steps `first` to `last` ranks waited for the slowest of them. All figures are means over the ranks."""

    kind: Literal["waited"] = "waited"
    first: int = Field(ge=0)
    last: int = Field(ge=0)
    seconds: float = Field(ge=0)
    """That a rank waited in these steps, beyond what the slowest did."""
    parts: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict, max_length=32)
    """Seconds of a rank in the phases of these steps that are its own."""
    rank: int = Field(ge=0)
    """The slowest."""
    node: str = Field(max_length=256)
    phase: str | None = Field(default=None, max_length=64)
    """In which it was slow; None where that is not known."""


class Carried(Entry):
    """All of an older journal in one line."""

    kind: Literal["carried"] = "carried"
    began_s: float
    world: int = Field(ge=1)
    segments: list[tuple[int, int, int, float]] = Field(max_length=SEGMENTS_LIMIT)
    lost_steps: int
    lost_s: float
    paused_s: float
    rank_s: float
    paused_rank_s: float
    starts: int


Line = Annotated[Started | Stepped | Back | Beat | Waited | Carried, Field(discriminator="kind")]
LINE: TypeAdapter[Line] = TypeAdapter(Line)


@dataclass(frozen=True)
class Goodput:
    """The sum. Steps and seconds; `ratio` is useful time over all time, from 0 to 1."""

    starts: int
    all_s: float
    useful_steps: int
    useful_s: float
    lost_steps: int
    lost_s: float
    paused_s: float
    cost: float

    @property
    def ratio(self) -> float:
        """Useful time over all time."""
        return self.useful_s / self.all_s if self.all_s > 0 else 0.0

    @property
    def cost_per_useful_step(self) -> float:
        """What one useful step cost; infinite where there is none yet and something was spent."""
        return self.cost / self.useful_steps if self.useful_steps else (math.inf if self.cost else 0.0)


@dataclass
class Ledger:
    """The history of a run so far."""

    began_s: float | None = None
    latest_s: float = 0.0
    world: int = 1
    starts: int = 0
    segments: list[tuple[int, int, int, float]] = field(default_factory=list)
    """First and last step, how many of them were useful, seconds: in order, without overlap."""
    lost_steps: int = 0
    lost_s: float = 0.0
    paused_s: float = 0.0
    rank_s: float = 0.0
    paused_rank_s: float = 0.0

    def take(self, entry: Line) -> None:
        """Adds an entry. Time that runs backwards (another node's clock) counts as none."""
        if isinstance(entry, Carried):
            self.began_s, self.latest_s, self.world, self.starts = entry.began_s, entry.at_s, entry.world, entry.starts
            self.segments, self.lost_steps, self.lost_s = list(entry.segments), entry.lost_steps, entry.lost_s
            self.paused_s, self.rank_s, self.paused_rank_s = entry.paused_s, entry.rank_s, entry.paused_rank_s
            return
        if self.began_s is None:
            self.began_s = self.latest_s = entry.at_s
        passed = max(0.0, entry.at_s - self.latest_s)
        self.latest_s = max(self.latest_s, entry.at_s)
        if isinstance(entry, Started):
            self.paused_s += passed
            self.paused_rank_s += passed * self.world
            self.world, self.starts = entry.world, self.starts + 1
            return
        self.rank_s += passed * self.world
        if isinstance(entry, Back):
            self.back(entry.step)
        elif isinstance(entry, Stepped) and entry.last >= entry.first:
            self._stepped(entry)

    def back(self, step: int) -> None:
        """Undoes what came after `step`. Of a segment that is cut, each step counts for the same share of its time."""
        while self.segments and self.segments[-1][1] > step:
            first, last, useful, seconds = self.segments.pop()
            if first > step:
                self.lost_steps += useful
                self.lost_s += seconds
                continue
            kept = (step - first + 1) / (last - first + 1)
            keeps = round(useful * kept)
            self.segments.append((first, step, keeps, seconds * kept))
            self.lost_steps += useful - keeps
            self.lost_s += seconds * (1 - kept)

    def goodput(self, now_s: float, cost_per_rank_hour: float = 0.0, pause_costs: bool = True) -> Goodput:
        """The sum at a time."""
        going = max(0.0, now_s - self.latest_s) if self.began_s is not None else 0.0
        paid_s = self.rank_s + going * self.world + (self.paused_rank_s if pause_costs else 0.0)
        return Goodput(
            starts=self.starts,
            all_s=self.latest_s + going - self.began_s if self.began_s is not None else 0.0,
            useful_steps=sum(useful for _, _, useful, _ in self.segments),
            useful_s=sum(seconds for *_, seconds in self.segments),
            lost_steps=self.lost_steps,
            lost_s=self.lost_s,
            paused_s=self.paused_s,
            cost=paid_s / 3600 * cost_per_rank_hour,
        )

    def carried(self) -> Carried:
        """The whole ledger as one entry."""
        return Carried(
            at_s=self.latest_s,
            began_s=self.began_s if self.began_s is not None else self.latest_s,
            world=self.world,
            segments=self.segments,
            lost_steps=self.lost_steps,
            lost_s=self.lost_s,
            paused_s=self.paused_s,
            rank_s=self.rank_s,
            paused_rank_s=self.paused_rank_s,
            starts=self.starts,
        )

    def _stepped(self, entry: Stepped) -> None:
        self.back(entry.first - 1)
        if self.segments and self.segments[-1][1] < entry.first - 1:
            # Done, saved and resumed from, but the journal's last lines were lost with the process: no time is known.
            last = self.segments[-1][1]
            self.segments.append((last + 1, entry.first - 1, entry.first - 1 - last, 0.0))
        steps = entry.last - entry.first + 1
        useful = min(entry.useful, steps)
        self.segments.append((entry.first, entry.last, useful, entry.seconds * useful / steps))
        self.lost_steps += steps - useful
        self.lost_s += entry.seconds * (steps - useful) / steps
        if len(self.segments) > SEGMENTS_LIMIT:
            older, newer = self.segments[: SEGMENTS_LIMIT // 2], self.segments[SEGMENTS_LIMIT // 2 :]
            first, last = older[0][0], older[-1][1]
            self.segments = [(first, last, sum(each[2] for each in older), sum(each[3] for each in older)), *newer]
