"""torch's flight recorder: which rank did not come to which collective, or came with another one.

The dumps are pickles of plain values. Nothing but plain values is made of them: a name of a class in one is refused.
"""

import io
import json
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.diagnose.finding import Line
from validation.diagnose.sources import DUMP, SourceError

LARGEST = 256 << 20
"""Bytes. A rank's ring of 2,000 entries with stacks is some 10 MB."""
MOST_RANKS = 10_000_000
MOST_TOLD = 32
"""Lines about one group of ranks."""


@dataclass(frozen=True)
class Entry:
    """One collective of one rank, as far as it came: scheduled, started, completed."""

    group: str
    number: int
    op: str
    sizes: str
    dtypes: str
    state: str


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}: a dump has plain values only")

    def persistent_load(self, _pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def read(path: Path) -> tuple[int, tuple[Entry, ...]]:
    """The rank and its entries, in order. Raises SourceError: nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise SourceError(f"{path}: larger than {LARGEST >> 20} MiB · it is no dump of the flight recorder")
        return _read(path, json.loads(raw) if raw.lstrip()[:1] == b"{" else _Plain(io.BytesIO(raw)).load())
    except SourceError:
        raise
    except RecursionError:
        raise SourceError(f"{path}: nested too deeply · it is no dump of the flight recorder") from None
    except Exception as wrong:  # a damaged pickle raises whatever its bytes happen to mean
        raise SourceError(f"{path}: no dump of the flight recorder: {wrong} · leave it out") from None


def _read(path: Path, told: Any) -> tuple[int, tuple[Entry, ...]]:
    if not isinstance(told, dict) or not isinstance(told.get("entries"), list):
        raise SourceError(f"{path}: a dump has `entries`, and this has none · another version's? leave it out")
    named = DUMP.search(path.name)
    rank = told.get("rank", next(filter(None, named.groups()), None) if named else None)
    rank = int(rank) if isinstance(rank, str) and re.fullmatch("[0-9]{1,7}", rank) else rank
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < MOST_RANKS:
        raise SourceError(f"{path}: does not say of which rank it is · keep the name that torch gave it")
    return rank, tuple(_entry(each) for each in told["entries"] if isinstance(each, dict) and not each.get("is_p2p"))


def _entry(each: Mapping[str, Any]) -> Entry:
    group = each.get("process_group", each.get("pg_id", ""))
    number = each.get("collective_seq_id", each.get("seq_id", -1))
    return Entry(
        "/".join(map(str, group))[:80] if isinstance(group, list | tuple) else str(group)[:80],
        number if isinstance(number, int) else -1,
        str(each.get("profiling_name", ""))[:80],
        str(each.get("input_sizes", ""))[:120],
        str(each.get("input_dtypes", ""))[:80],
        str(each.get("state", ""))[:20],
    )


def told(ranks: Mapping[int, Sequence[Entry]], file: str) -> Iterator[Line]:
    """What the dumps of all ranks say together, as lines that rules know. Pure."""
    groups: dict[str, dict[int, dict[int, Entry]]] = defaultdict(dict)
    for rank, entries in ranks.items():
        for each in entries:
            if each.number >= 0:
                groups[each.group].setdefault(rank, {})[each.number] = each
    # A recorder that never saw one completed (gloo's) does not look: its states say nothing.
    looks = any(each.state == "completed" for entries in ranks.values() for each in entries)
    for group, members in sorted(groups.items()):
        for line in list(_of_group(group, members, looks))[:MOST_TOLD]:
            yield Line(file, 0, line[1], None, line[0], None)


def _of_group(group: str, members: Mapping[int, Mapping[int, Entry]], looks: bool) -> Iterator[tuple[int, str]]:
    # A ring forgets: only what comes after everybody's oldest can be missed.
    oldest = max(min(entries) for entries in members.values())
    seen = {number for entries in members.values() for number in entries if number >= oldest}
    for number in sorted(seen):
        there = {rank: entries[number] for rank, entries in members.items() if number in entries}
        missing = sorted(members.keys() - there.keys())
        op = Counter(each.op for each in there.values()).most_common(1)[0][0]
        for rank in missing:
            yield (
                rank,
                (
                    f"flight recorder: rank {rank} has not come to collective {number} ({op}) of group {group}, "
                    f"{len(there)} of {len(members)} ranks have"
                ),
            )
        for what in ("op", "sizes", "dtypes"):
            values = Counter(getattr(each, what) for each in there.values())
            if len(values) > 1:
                usual, count = values.most_common(1)[0]
                odd = [rank for rank, each in sorted(there.items()) if getattr(each, what) != usual]
                sure = count > len(there) / 2
                for rank in odd if sure else sorted(there):
                    yield (
                        rank,
                        (
                            f"flight recorder: rank {rank} came to collective {number} of group {group} with {what} "
                            f"{getattr(there[rank], what)}, {'the others' if sure else 'as many others'} with {usual}"
                        ),
                    )
                return
        if missing:
            return
        stuck = [rank for rank, each in sorted(there.items()) if looks and each.state != "completed"]
        if stuck and len(stuck) < len(there):
            for rank in stuck:
                yield (
                    rank,
                    (
                        f"flight recorder: rank {rank} has not completed collective {number} ({op}) of group {group}, "
                        f"{len(there) - len(stuck)} of {len(there)} ranks have"
                    ),
                )
            return
        if stuck:
            yield (
                stuck[0],
                (
                    f"flight recorder: all {len(there)} ranks have come to collective {number} ({op}) of group {group} "
                    "and none has completed it"
                ),
            )
            return
