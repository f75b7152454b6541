"""A rule: texts that mean something, what they mean, how to check it, what to do. One file a rule, with its cases."""

import re
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from policies.reading import PolicyError, read
from validation.diagnose.kinds import KINDS, Confidence, Retry, Role, Symptom

RULES = Path(__file__).parent / "rules"

Dotted = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", max_length=80)]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=600)]
Pattern = Annotated[str, StringConstraints(min_length=4, max_length=400)]

SHORTEST_LITERAL = 4
"""Characters. Each pattern must hold a text of at least this length that every match has: lines are found by it first,
at the speed of a disk."""

GROUPS = frozenset({
    "rank", "node", "gpu", "peer", "rail", "port", "file", "code", "bytes", "step", "op", "seq", "group", "xid",
    "world",
})  # fmt: skip
"""The names that a pattern may take out of a line; summaries may use them, as in `rank {rank}`."""


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(_Written):
    """A text in which the rule must be found, with what is taken out of it. Real texts, private details replaced."""

    text: Annotated[str, StringConstraints(min_length=4, max_length=4000)]
    takes: dict[str, str] = Field(default_factory=dict)


class RuleError(Exception):
    """Rules that cannot be used: file, what is wrong, what to do."""


class Rule(_Written):
    """One file of `validation/diagnose/rules/`, named by its id."""

    id: Dotted
    title: Sentence
    """The cause in words; for cascades and teardown, what the line says."""
    symptom: Symptom
    role: Role
    kind: Dotted
    """The kind of cause, as `network.link_down`: several rules may mean the same one."""
    patterns: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Python's regular expressions, searched in a line whose launcher's prefix, time and colours are gone."""
    unless: tuple[Pattern, ...] = ()
    """A line that one of these is found in is not meant."""
    confidence: Confidence = Confidence.LIKELY
    """How sure the line makes one by itself."""
    confirmed_by: tuple[Dotted, ...] = ()
    """Rules or kinds whose finding anywhere in the same job makes one surer by a step."""
    explains: tuple[Dotted, ...] = ()
    """Kinds of cause that are only consequences where this one is found earlier or on the rank that they blame."""
    check: Annotated[tuple[Sentence, ...], Field(max_length=6)] = ()
    """How to verify it: commands first."""
    fix: Annotated[tuple[Sentence, ...], Field(max_length=6)] = ()
    retry: Retry = Retry.UNKNOWN
    sources: Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+:\S+$")], ...], Field(min_length=1)]
    """Where it is known from, as `SOURCE:ITEM`: `nccl:docs/env#nccl-ib-timeout`, `pytorch:issues/119856`."""
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
    not_cases: tuple[Annotated[str, StringConstraints(min_length=4, max_length=4000)], ...] = ()
    """Texts that look alike and are not meant."""

    @cached_property
    def compiled(self) -> tuple[re.Pattern[str], ...]:
        """`patterns`, ready to search."""
        return tuple(re.compile(each) for each in self.patterns)

    @cached_property
    def _but(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(each) for each in self.unless)

    def search(self, line: str) -> dict[str, str] | None:
        """What the rule takes out of a line; none where it is not found. Never raises."""
        for each in self.compiled:
            if found := each.search(line):
                if any(but.search(line) for but in self._but):
                    return None
                return {name: value for name, value in found.groupdict().items() if value is not None}
        return None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for each in (*self.patterns, *self.unless):
            try:
                compiled = re.compile(each)
            except re.error as wrong:
                raise ValueError(f"{each!r} is no regular expression: {wrong}") from None
            if more := set(compiled.groupindex) - GROUPS:
                raise ValueError(f"{each!r} takes out {', '.join(sorted(more))}, which is none of {sorted(GROUPS)}")
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind} is none of {', '.join(sorted(KINDS))}")
        if self.role in (Role.ROOT, Role.CONFIRMATION) and not (self.check and self.fix):
            raise ValueError("a cause needs at least one check and one fix")
        if self.role is Role.ROOT and self.retry is Retry.UNKNOWN:
            raise ValueError("a cause must say whether a retry makes sense")
        return self


@cache
def load_rules(folder: Path = RULES) -> tuple[Rule, ...]:
    """All rules, by id. Raises RuleError with everything that is wrong, file by file."""
    found: dict[str, Rule] = {}
    wrong: list[str] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            rule = read(path, Rule)
        except PolicyError as error:
            wrong += error.problems
            continue
        if path.stem != rule.id:
            wrong.append(f"{path}: is of the rule {rule.id} · call the file {rule.id}.yaml")
        found[rule.id] = rule
    known = found.keys() | KINDS
    for rule in found.values():
        if unknown := sorted({*rule.confirmed_by, *rule.explains} - known):
            wrong.append(f"{folder / rule.id}.yaml: names {', '.join(unknown)} · no rule or kind of that name")
    if not found and not wrong:
        wrong.append(f"{folder}: no rules · the installation is not whole")
    if wrong:
        raise RuleError("\n".join(wrong))
    return tuple(found.values())
