"""The controls of `policies/controls/`, read, checked against each other, and as a reference for people."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from policies.canonical import digest
from policies.control import Control
from policies.expectation import Expectation
from policies.pins import PIN_EXPECTATIONS
from policies.reading import PolicyError, read
from policies.wording import words
from spec.plan.expectations import EXPECTED

CONTROLS = Path(__file__).parent / "controls"


@dataclass(frozen=True)
class Catalogue:
    """All controls, in the order of their files."""

    controls: tuple[Control, ...]

    def __iter__(self) -> Iterator[Control]:
        return iter(self.controls)

    def __len__(self) -> int:
        return len(self.controls)

    def __getitem__(self, name: str) -> Control:
        for control in self.controls:
            if control.id == name:
                return control
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(control.id == name for control in self.controls)

    @property
    def measures(self) -> frozenset[str]:
        """The measurements that some control judges."""
        return frozenset(control.measure for control in self.controls)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the catalogue's canonical JSON (RFC 8785): what certificates carry."""
        data = [control.model_dump(mode="json", exclude_unset=True) for control in self.controls]
        return digest(data)


def load_catalogue(folder: Path = CONTROLS) -> Catalogue:
    """Reads every `*.yaml` of a folder. Raises PolicyError with all problems: unreadable, unknown key, id given twice,
    a `{spec: …}` that no spec gives, or no control at all.
    """
    problems: list[str] = []
    found: dict[str, tuple[Control, str]] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            controls = read(path, tuple[Control, ...], list)
        except PolicyError as error:
            problems += error.problems
            continue
        for control in controls:
            if control.id in found:
                problems.append(f"{path.name}: {control.id}: is in {found[control.id][1]} already; give it its own id")
            found.setdefault(control.id, (control, path.name))
            unknown = sorted(control.looked_up - EXPECTED.keys() - PIN_EXPECTATIONS.keys())
            problems += [
                f"{path.name}: {control.id}: no spec gives {name}; see spec/plan/expectations.py" for name in unknown
            ]
    if not found and not problems:
        problems.append(f"{folder}: no controls; an examination without any would pass everything")
    if problems:
        raise PolicyError(problems)
    return Catalogue(tuple(control for control, _ in found.values()))


def catalogue_markdown(catalogue: Catalogue | None = None) -> str:
    """The reference of all controls, in Markdown, a section an area."""
    catalogue = catalogue or load_catalogue()
    lines = [
        "# Controls",
        "",
        f"What a node must satisfy before it joins the pool: {len(catalogue)} controls, from `policies/controls/`.",
        "A failed `critical` or `major` control keeps the node out; a failed `warning` is reported.",
    ]
    area = ""
    for control in catalogue:
        if (own := control.id.partition(".")[0]) != area:
            area = own
            lines += ["", f"## {area}"]
        lines += ["", *_section(control)]
    lines += ["", "## What `expect` may say", ""]
    lines += [f"- `{name}`: {field.description}" for name, field in Expectation.model_fields.items()]
    lines += ["", "## What `{spec: …}` may name", ""]
    lines += [f"- `{name}`: {meaning}" for name, meaning in sorted({**EXPECTED, **PIN_EXPECTATIONS}.items())]
    return "\n".join(lines) + "\n"


def _section(control: Control) -> list[str]:
    applies = [f"role `{control.applies_to.role.value}`"] if control.applies_to.role else []
    applies += [f"machine `{control.applies_to.machine.value}`"] if control.applies_to.machine else []
    applies += [f"the spec expects `{control.applies_to.expects}`"] if control.applies_to.expects else []
    applies += [f"the machine has its own `{each.value}`" for each in control.requires]
    by = f" (role `{control.repair.role}`)" if control.repair.role else ""
    return [
        f"### `{control.id}`",
        "",
        f"**{control.title}** · {control.severity.value}",
        "",
        control.why,
        "",
        f"- Applies to: {', '.join(applies) if applies else 'every node'}",
        f"- Measures: `{control.measure}`",
        f"- Expects: {words(control.expect)}",
        f"- Repair: {control.repair.do}{by}",
        f"- References: {', '.join(control.references)}",
    ]
