"""The diagnosis of a job from files: reads them all once, in several processes where there are many."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from validation.diagnose import collectives, flight
from validation.diagnose.finding import Diagnosis, Found, Line, Read
from validation.diagnose.lines import whose
from validation.diagnose.metrics.measured import Wanted, measured
from validation.diagnose.reason import diagnose
from validation.diagnose.rule import RULES, Rule, load_rules
from validation.diagnose.scan import Scanned, Scanner
from validation.diagnose.sources import Source, SourceError, find
from validation.diagnose.times import with_years

PARALLEL_BYTES = 64 << 20
"""From here on it is worth starting processes."""

Progress = Callable[[int, int], None]
"""Is told how many files of how many are read."""


def read_job(
    paths: Iterable[Path],
    progress: Progress = lambda _done, _of: None,
    rules: Path = RULES,
    processes: int | None = None,
    metrics: Wanted = Wanted(),  # noqa: B008 - it cannot be changed
) -> Diagnosis:
    """The diagnosis of what these files and folders hold, and of the metrics of that time.

    Raises SourceError where nothing can be read, RuleError, PolicyError.
    """
    known = load_rules(rules)
    sources = find(paths)
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
    recorded: dict[int, tuple[flight.Entry, ...]] = {}
    for path in sources.dumps:
        try:
            rank, entries = flight.read(path)
            recorded[rank] = entries
        except SourceError as wrong:
            left_out.append(str(wrong))
    if not sources.files and not recorded:
        raise SourceError(f"nothing could be read: {'; '.join(left_out[:4])}")
    if recorded:
        name = str(sources.dumps[0].parent / "flight recorder")
        found += _found(flight.told(recorded, name), known)
    nodes = [node for each in sources.files if (node := whose(each.plain_name)[1])]
    seen = measured(sources.answers, metrics, found, known, nodes)
    found += seen.found
    left_out += seen.left_out
    read = Read(
        files=len(sources.files) + len(recorded) + seen.files,
        bytes=size + seen.bytes,
        lines=lines,
        ranks=tuple(sorted({each.line.rank for each in found if each.line.rank is not None} | recorded.keys())),
        left_out=tuple(left_out),
    )
    return diagnose(found, known, read).model_copy(update={"measured": seen.evidence})


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
