"""The diagnosis of a job from files: reads them all once, in several processes where there are many."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from validation.diagnose import collectives, flight
from validation.diagnose.finding import Diagnosis, Found, Line, Read
from validation.diagnose.kinds import Symptom
from validation.diagnose.lines import whose
from validation.diagnose.live import odd, snapshot
from validation.diagnose.live.groups import grouped, ranks_of
from validation.diagnose.live.snapshot import Snapshot
from validation.diagnose.metrics.measured import Wanted, measured
from validation.diagnose.reason import diagnose
from validation.diagnose.rule import RULES, Rule, load_rules
from validation.diagnose.scan import Scanned, Scanner
from validation.diagnose.sources import Held, Source, SourceError, Sources, find
from validation.diagnose.times import with_years

PARALLEL_BYTES = 64 << 20
"""From here on it is worth starting processes."""

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Is told how many files of how many are read."""


def read_job(
    paths: Iterable[Path],
    progress: Progress = lambda _done, _of: None,
    rules: Path = RULES,
    processes: int | None = None,
    metrics: Wanted = Wanted(),  # noqa: B008 - it cannot be changed
    live: Sequence[Snapshot] = (),
) -> Diagnosis:
    """The diagnosis of what these files and folders hold, of metrics of that time, and of snapshots of a running job.

    Raises SourceError where nothing can be read, RuleError, PolicyError.
    """
    known = load_rules(rules)
    asked = list(paths)
    sources = find(asked) if asked or not live else Sources((), (), (), (), ())
    found: list[Found] = []
    left_out = list(sources.left_out)
    size = lines = 0
    for number, each in enumerate(_scanned(sources.files, rules, processes), 1):
        found += each.found
        size += each.bytes
        lines += each.lines
        left_out += [each.wrong] if each.wrong else []
        progress(number, len(sources.files))
    found = with_years(found)
    found += _found(collectives.told(found), known)
    recorded = dict(_read(flight.read, sources.dumps, left_out))
    if recorded:
        found += _found(flight.told(recorded, str(sources.dumps[0].parent / "flight recorder")), known)
    snapshots = [*live, *_read(snapshot.read, sources.snapshots, left_out)]
    found += _found_live(snapshots, known, rules)
    left_out += [f"{each.node}: {why}" for each in snapshots for why in each.missed]
    nodes = [node for each in sources.files if (node := whose(each.plain_name)[1])]
    nodes += [each.node for each in snapshots]
    seen = measured(sources.answers, metrics, found, known, nodes)
    found += seen.found
    left_out += seen.left_out
    if not (sources.files or recorded or snapshots or seen.files):
        raise SourceError(f"nothing could be read: {'; '.join(left_out[:4])}")
    ranks = {each.line.rank for each in found if each.line.rank is not None}
    read = Read(
        files=len(sources.files) + len(recorded) + len(snapshots) + seen.files,
        bytes=size + seen.bytes,
        lines=lines,
        ranks=tuple(sorted(ranks | recorded.keys() | ranks_of(snapshots).keys())),
        missing_ranks=odd.missing(snapshots) or _missing(found, sources.files, ranks),
        left_out=tuple(left_out),
    )
    told = diagnose(found, known, read).model_copy(update={"measured": seen.evidence})
    return told.model_copy(update={"standing": grouped(snapshots)}) if snapshots else told


def _read(reader: Callable[[Path], T], paths: Iterable[Path], left_out: list[str]) -> Iterator[T]:
    """What can be read; of the rest it is said why not."""
    for path in paths:
        try:
            yield reader(path)
        except SourceError as wrong:
            left_out.append(str(wrong))


def _missing(found: Iterable[Found], files: Iterable[Source], seen: set[int]) -> tuple[int, ...]:
    """Ranks of the job of which no file is here, where most have one of their own: else ranks share files."""
    told = [each.takes["world"] for each in found if "world" in each.takes]
    world = max((int(each) for each in told if each.isdecimal() and len(each) < 8), default=0)
    own = {rank for each in files if (rank := whose(each.plain_name)[0]) is not None and rank < world}
    return tuple(sorted(set(range(world)) - own - seen)) if len(own) > world / 2 else ()


HOLDS = ("storage", "network", "gpu", "node")
"""Areas of what a kernel says that can hold a job whose ranks are all there; the rest ends one."""


def _found_live(snapshots: Sequence[Snapshot], known: Sequence[Rule], folder: Path) -> Iterator[Found]:
    """What the nodes of a running job say together, and what their kernels' logs say."""
    live = [rule for rule in known if rule.id.startswith("live.")]
    areas = {rule.id: rule.kind.partition(".")[0] for rule in known}
    told = list(_found(odd.told(snapshots), live))
    yield from told
    whole = not any(each.rule in ("live.gone", "live.ras_silent") for each in told)
    moves = any(each.rule == "live.moving" for each in told)
    hangs = {rule.id for rule in known if rule.symptom is Symptom.HANG}
    for each in snapshots:
        if each.kernel:
            text = Held(Path(each.name), f"kern-{each.node}.log", each.time.year, "\n".join(each.kernel).encode())
            for found in _scan(text, folder).found:
                if (whole and areas[found.rule] not in HOLDS) or (moves and found.rule in hangs):
                    continue
                yield replace(found, line=found.line._replace(file=each.name, number=0, node=each.node, rank=None))


def _found(lines: Iterable[Line], rules: Sequence[Rule]) -> Iterator[Found]:
    """Rules on lines that were made here and are in no file."""
    for line in lines:
        for rule in rules:
            if (takes := rule.search(line.text)) is not None:
                yield Found(rule.id, line, takes, 1, None)


def _scanned(sources: Sequence[Source], folder: Path, processes: int | None) -> Iterator[Scanned]:
    """Each file's, in their order."""
    wanted = processes or min(os.cpu_count() or 1, len(sources))
    if wanted < 2 or sum(each.path.stat().st_size for each in sources) < PARALLEL_BYTES:
        for each in sources:
            yield _scan(each, folder)
        return
    share = max(1, min(32, len(sources) // wanted // 4))
    with ProcessPoolExecutor(wanted, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_scan, sources, [folder] * len(sources), chunksize=share)


@cache
def _scanner(folder: Path) -> Scanner:
    return Scanner(load_rules(folder))


def _scan(source: Source, folder: Path) -> Scanned:
    return _scanner(folder).scan(source)
