"""Finds the lines that rules mean: all patterns at once over the raw bytes, each hit then looked at as a line.

The patterns run in Vectorscan, as a filter that may find too much and never too little; what it finds is decided by the
rule's own expression on the line without its prefixes.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import hyperscan

from validation.diagnose.filter import compiled
from validation.diagnose.finding import Found, Line
from validation.diagnose.kinds import Role
from validation.diagnose.lines import COLOUR, LONGEST, head, node_of, whose
from validation.diagnose.rule import Rule
from validation.diagnose.sources import Source, SourceError

MOST_HITS = 2000
"""Lines of one file in which a rule is looked at one by one; after that its first in each chunk stands for all."""

WINDOW = 2048
"""Bytes before and behind a hit in a line that has no end."""

LISTED = re.compile(r"""\[(?:(?:'[^']{0,300}'|"[^"]{0,300}")\s*,\s*)+(?:'[^']{0,300}'|"[^"]{0,300}")\s*\]""")
"""Texts that a setting or a command lists: nobody said them."""

SPOKEN = re.compile(
    r"^\W{0,16}(?:prompt|question|answer|completion|response|user|assistant|human|instruction)\W{0,3}:\s"
    r"|^\W{0,16}(?:summary|runbook|description)\W{0,3}:\s|^[│┃║]|<\|[a-z_]{2,20}\|>|\(POSIX\."
    r"|\bI(?:'m| am| get| see| have| run| ran| was| got| tried)\b"
    r"|\b(?:my|our) (?:job|pod|training|code|model|script|GPU|disk|node)s?\b"
    r"|\bwe (?:exchanged|replaced|had|have|got|get|saw|see|ran|run|tried|fixed)\b",
    re.IGNORECASE,
)
"""What a model was given or wrote, as trainers print it, and what people say of themselves."""

QUOTED = re.compile(r"""(?<=[^\]]\s)"[^"\s]{1,60}(?:\s[^"\s]{1,60}){2,60}\"""")
"""Some words that a line repeats from elsewhere."""

MOST_SEEN = 64
"""Different ranks, or things taken out, of one rule and file that are told apart."""

TAIL = 256 << 10
"""Bytes of a file's end in which the last line of progress of each rank is looked for."""
NEAR = 16 << 10
"""Of those, where the file is of one rank."""
IDLE = 64
"""Lines of progress there, from the end, after which no other rank is expected."""


class Scanned(NamedTuple):
    """Of one file: what was found, bytes and lines that were read, and why the rest was not."""

    found: list[Found]
    bytes: int
    lines: int
    wrong: str


class Scanner:
    """All rules, compiled. Holds nothing of what it scanned."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._compiled: dict[frozenset[int], hyperscan.Database] = {}
        self._first = frozenset(number for number, rule in enumerate(rules) if rule.role is Role.PROGRESS)

    def scan(self, source: Source) -> Scanned:
        """What is found in a file. Never raises: what was read before an error counts."""
        pile = _Pile(self._rules, source)
        wrong, tail = "", b""
        try:
            for chunk in source.chunks():
                plain = COLOUR.sub(b"", chunk) if b"\x1b" in chunk else chunk
                plain = plain.replace(b"\r\n", b"\n") if b"\r" in plain else plain
                pile.take(plain, self._database(self._first | pile.frequent))
                tail = (tail + plain)[-TAIL:] if len(plain) < TAIL else plain[-TAIL:]
        except SourceError as error:
            wrong = str(error)
        pile.look_back(tail, self._progress, self._progress_numbers)
        return Scanned(pile.found(), pile.bytes, pile.lines, wrong)

    @cached_property
    def _progress(self) -> hyperscan.Database:
        return compiled([self._rules[number] for number in self._progress_numbers], frozenset())

    @cached_property
    def _progress_numbers(self) -> list[int]:
        return sorted(self._first)

    def _database(self, first_only: frozenset[int]) -> hyperscan.Database:
        if first_only not in self._compiled:
            self._compiled[first_only] = compiled(self._rules, first_only)
        return self._compiled[first_only]


class _Pile:
    """What was found in one file so far: equal lines of a rank are one, with their number."""

    def __init__(self, rules: tuple[Rule, ...], source: Source) -> None:
        self._rules, self._source = rules, source
        self._rank, self._node = whose(source.plain_name)
        self._found: dict[tuple[object, ...], Found] = {}
        self._hits = [0] * len(rules)
        self.bytes = self.lines = 0

    @property
    def frequent(self) -> frozenset[int]:
        return frozenset(number for number, hits in enumerate(self._hits) if hits > MOST_HITS)

    def take(self, chunk: bytes, database: hyperscan.Database) -> None:
        hits: list[tuple[int, int]] = []
        held: dict[int, tuple[int, int]] = {}
        """Of each rule its last hit, and where another one in the same line would end at the most."""

        def hit(number: int, _start: int, end: int, *_: object) -> None:
            # A pattern that ends in `.*` or `\d+` hits at each byte to its line's end: one of these is enough.
            since, until = held.get(number, (0, 0))
            if not since <= end < until:
                stop = chunk.find(b"\n", end - 1, end - 1 + WINDOW)
                held[number] = end, (stop if stop >= 0 else end - 1 + WINDOW) + 1
                hits.append((end, number))

        database.scan(chunk, match_event_handler=hit)
        counted, lines = 0, 0
        last: dict[int, int] = {}
        for end, number in sorted(set(hits)):
            start, stop = _line(chunk, end)
            if last.get(number) == start:
                continue
            last[number] = start
            self._hits[number] += 1
            lines += chunk.count(b"\n", counted, start)
            counted = max(counted, start)
            self._look(number, chunk[start:stop].decode("utf-8", "replace"), self.lines + lines + 1)
        self.lines += chunk.count(b"\n")
        self.bytes += len(chunk)

    def look_back(self, tail: bytes, database: hyperscan.Database, numbers: Sequence[int]) -> None:
        """The last line of progress of each rank: of a chunk only the first was looked at."""
        if not any(self._hits[number] for number in numbers):
            return
        if self.bytes > len(tail):  # it begins within a line
            tail = tail.partition(b"\n")[2]
        told: set[tuple[object, ...] | None] = {None}
        if self._rank is not None:  # the file is one rank's, and its last line is near its end
            near = tail[-NEAR:].partition(b"\n")[2] if len(tail) > NEAR else tail
            self._back(near, database, numbers, told, 1)
        if len(told) == 1:
            self._back(tail, database, numbers, told, IDLE)

    def _back(
        self,
        tail: bytes,
        database: hyperscan.Database,
        numbers: Sequence[int],
        told: set[tuple[object, ...] | None],
        most_idle: int,
    ) -> None:
        hits: set[tuple[int, int]] = set()
        database.scan(tail, match_event_handler=lambda i, _start, end, *_: hits.add((end, numbers[i])))
        idle = 0
        for end, number in sorted(hits, reverse=True):
            start, stop = _line(tail, end)
            at = self.lines - tail.count(b"\n", start) + 1
            key = self._look(number, tail[start:stop].decode("utf-8", "replace"), at, told)
            idle = idle + 1 if key in told else 0
            told.add(key)
            if idle >= most_idle:
                return

    def _look(
        self, number: int, raw: str, at: int, told: Collection[tuple[object, ...] | None] = ()
    ) -> tuple[object, ...] | None:
        """Whose the line is, where the rule is found in it. It counts, unless `told` has whose it is."""
        rule = self._rules[number]
        said = head(raw, self._source.year)
        if rule.role in (Role.ROOT, Role.CONFIRMATION) and SPOKEN.search(said.text):
            return None
        takes = rule.search(_own(said.text) if rule.role is Role.ROOT else said.text)
        if takes is None:
            return None
        rank = self._rank if said.rank is None else said.rank
        node = said.node or node_of(said.text) or self._node
        progress = rule.role is Role.PROGRESS
        key = (number, rank, node, *(() if progress else sorted(takes.items())))
        before = self._found.get(key)
        if before is None and sum(each[0] == number for each in self._found) >= MOST_SEEN * (rank is None or 64):
            key = (number,)
            before = self._found.get(key)
        if key in told:
            return key
        line = Line(self._source.name, at, said.text, said.time, rank, node)
        if before is None:
            self._found[key] = Found(rule.id, line, takes, 1, said.time, said.time)
        elif progress:  # the last one counts
            self._found[key] = Found(rule.id, line, takes, before.count + 1, said.time, before.first or said.time)
        else:
            self._found[key] = replace(before, count=before.count + 1, last=said.time or before.last, until=at)
        return key

    def found(self) -> list[Found]:
        return list(self._found.values())


def _own(text: str) -> str:
    """What a line says itself: without texts that it only lists or repeats."""
    if "['" in text or '["' in text:
        text = LISTED.sub("[]", text)
    return QUOTED.sub('""', text) if ' "' in text and not text.startswith("{") else text


def _line(chunk: bytes, end: int) -> tuple[int, int]:
    """Where the line begins and ends in which a hit ends; a part of it where it is longer than anybody's line."""
    inside = max(0, end - 1)
    least, most = max(0, inside - LONGEST), min(len(chunk), inside + LONGEST + 1)
    start = chunk.rfind(b"\n", least, inside) + 1 or least
    stop = chunk.find(b"\n", inside, most)
    stop = most if stop < 0 else stop
    if stop - start > LONGEST:
        start, stop = max(start, end - WINDOW), min(stop, end + WINDOW)
    return start, stop
