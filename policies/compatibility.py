"""Whether pinned versions work together, by the rules in `policies/compatibility.yaml`. Pure once they are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version as Parsed
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from policies.pins import Component, PinSet
from policies.reading import PolicyError, read
from spec.proofs import Proof

RULES = Path(__file__).parent / "compatibility.yaml"


def _range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no range of versions; write it as >=13,<14") from None
    return text


Range = Annotated[str, AfterValidator(_range)]


class Rule(BaseModel):
    """One thing that is known of versions: a range that asks for another, or components that must be equal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$")]
    when: dict[Component, Range] = {}
    needs: dict[Component, Range] = {}
    same: tuple[Component, ...] = ()
    parts: Annotated[int, Field(ge=1)] | None = None
    """How many parts of the versions must be equal: 1 is the major version; all of them by default."""
    why: Annotated[str, StringConstraints(min_length=10)]
    source: Annotated[str, StringConstraints(min_length=10)]

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if len(self.same) == 1 or bool(self.same) == bool(self.needs) or (self.same and self.when):
            raise ValueError("write either `needs`, with `when` beside it, or `same` with two components or more")
        if self.needs and not self.when:
            raise ValueError("`needs` without `when`: say which versions the rule is about")
        return self


class Compatible(StrEnum):
    """How a rule came out."""

    OK = "ok"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """A version that the rule is about is not pinned: that is not ok."""
    NOT_APPLICABLE = "not_applicable"
    """The rule is about other versions, or about what is not installed."""


@dataclass(frozen=True)
class Compatibility:
    """One rule on one set of versions."""

    rule: str
    state: Compatible
    versions: Mapping[str, str | None]
    """The versions that the rule looked at; none where a component is not installed or not pinned."""
    why: str
    source: str

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version or 'not pinned'}" for name, version in self.versions.items())
        return f"{self.rule}: {self.state.value}: {versions} · {self.why} · {self.source}"


def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """The rules of a file. Raises PolicyError with every problem, an id given twice and no rule at all among them."""
    rules = read(path, tuple[Rule, ...], list)
    twice = sorted({rule.id for rule in rules if sum(each.id == rule.id for each in rules) > 1})
    if twice or not rules:
        raise PolicyError(
            [f"{path}: {each}: is given twice; give each rule its own id" for each in twice]
            or [f"{path}: no rules; without any, everything would be compatible"]
        )
    return rules


def check(
    components: Mapping[Component, str | None], rules: tuple[Rule, ...] | None = None
) -> tuple[Compatibility, ...]:
    """Every rule on a set of versions, in the order of the rules. `components` as in `PinSet.components`."""
    return tuple(_check(rule, components) for rule in (load_rules() if rules is None else rules))


def proofs(pins: PinSet) -> tuple[Proof, ...]:
    """The rules that a pin set is subject to, as proofs of the design. A version that is unknown proves nothing."""
    return tuple(
        Proof(
            id=f"pins.{each.rule}",
            title=each.why,
            holds=each.state is Compatible.OK,
            numbers={name: version or "not pinned" for name, version in each.versions.items()},
            message=", ".join(f"{name} {version or 'is not pinned'}" for name, version in each.versions.items()),
            advice=f"pin versions that work together in policies/pins/{pins.name}.yaml; see {each.source}",
            fields=("pins",),
        )
        for each in check(pins.components)
        if each.state is not Compatible.NOT_APPLICABLE
    )


def _check(rule: Rule, components: Mapping[Component, str | None]) -> Compatibility:
    about = dict.fromkeys([*rule.when, *rule.needs, *rule.same])
    versions: dict[str, str | None] = {name: components.get(name) for name in about}
    state = _state(rule, components)
    return Compatibility(rule.id, state, versions, rule.why, rule.source)


def _state(rule: Rule, components: Mapping[Component, str | None]) -> Compatible:
    if any(name in components and components[name] is None for name in (*rule.when, *rule.same)):
        return Compatible.NOT_APPLICABLE
    asked = {name: _within(components.get(name), wanted) for name, wanted in rule.when.items()}
    if False in asked.values():
        return Compatible.NOT_APPLICABLE
    found = [_within(components.get(name), wanted) for name, wanted in rule.needs.items()]
    if rule.same:
        parts = [_parts(components.get(name), rule.parts) for name in rule.same]
        found = [None if None in parts else len(set(parts)) == 1]
    if None in asked.values() or None in found:
        return Compatible.UNKNOWN
    return Compatible.OK if all(found) else Compatible.BROKEN


def _within(version: str | None, wanted: str) -> bool | None:
    return None if version is None else SpecifierSet(wanted).contains(Parsed(version))


def _parts(version: str | None, parts: int | None) -> tuple[int, ...] | None:
    return None if version is None else Parsed(version).release[:parts]
