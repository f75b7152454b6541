"""A running job looked at for `muster diagnose --live`, and where its ranks stand, as a table."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from muster.console import out, progress, result, table
from policies.report.names import fold, ranges
from validation.diagnose.finding import Standing
from validation.diagnose.live.collect import collect, local_job
from validation.diagnose.live.gather import gather
from validation.diagnose.live.snapshot import Snapshot, save
from validation.diagnose.slurm import ID

MOST_ROWS = 12
"""Of the table: with the cause above it, a screen."""


def look(job: str, native: bool, folder: Path | None) -> list[Snapshot]:
    """Snapshots of a Slurm job's nodes, or of this one; kept in a folder where one is given. Raises SourceError."""
    with progress("looking") as show:
        if ID.fullmatch(job) and shutil.which("srun"):
            found = gather(job, native, progress=lambda done, of: show(f"{done} of {of} nodes", False))
        else:
            unread: list[int] = []
            ranks = local_job(job, unread=unread)
            show(f"{len(ranks)} ranks of {ranks[0].job} on this node", False)
            found = [collect(ranks, native, unread=unread)]
    if folder is not None:
        save(found, folder)
    return found


def print_standing(rows: Sequence[Standing], blamed: int | None) -> None:
    """The blamed rank's first, then the smallest groups, and the largest in any case: it is what others do."""
    if not rows:
        return
    result("")
    result(Text("where ranks stand", "bold"))
    shown = table("ranks", "do", "at", "state", "step", "CPU")
    several = len({node for each in rows for node in each.nodes}) > 1
    ordered = sorted(rows, key=lambda each: blamed not in each.ranks)
    kept = (
        ordered if len(rows) <= MOST_ROWS else [*ordered[: MOST_ROWS - 1], max(rows, key=lambda each: len(each.ranks))]
    )
    for each in kept:
        shown.add_row(
            _cut(ranges(each.ranks), 28) + (f" ({len(each.ranks)})" if len(each.ranks) > 2 else ""),
            each.doing + (f" on {fold(each.nodes)}" if several and len(each.nodes) == 1 else ""),
            _cut(each.where, 40),
            _cut(" ".join((each.states, *each.wchans)), 26),
            _step(each),
            "" if each.cpu_percent is None else f"{each.cpu_percent} %",
        )
    out.print(shown)
    if left := sum(len(each.ranks) for each in rows) - sum(len(each.ranks) for each in kept):
        result(f"  and {left} ranks at {len(rows) - len(kept)} more places: --html and --json have them")


def _step(each: Standing) -> str:
    if each.last_step is None:
        return ""
    return str(each.last_step) if each.first_step == each.last_step else f"{each.first_step}-{each.last_step}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
