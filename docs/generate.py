"""Writes what the docs take from the code: `make docs`. `pages` says what, for the test that keeps it current."""

import ast
import functools
import inspect
import itertools
import json
import re
from pathlib import Path
from typing import Any

import typer

from muster.cli import app
from policies.catalogue import catalogue_markdown
from policies.compatibility import Rule, load_rules
from runtime.exits import Exit
from runtime.failures.kinds import TREATMENTS
from spec.draw import draw
from spec.load import load, schema
from spec.plan import ClusterPlan, derive
from spec.proofs import PROOFS, prove
from spec.workload import Workload
from spec.workload.answer import Answer
from validation.diagnose.finding import schema as diagnosis_schema
from validation.diagnose.history import schema as history_schema
from validation.diagnose.kinds import Symptom
from validation.diagnose.rule import load_rules as diagnosis_rules
from validation.efficiency.figures import Report

DOCS = Path(__file__).parent
LAB = DOCS.parent / "clusters" / "lab.yaml"


def pages() -> dict[str, str]:
    """Every generated file's text, by its path below docs/. The same as the commands print."""
    plan = derive(load(LAB))
    return {
        "pictures/lab.svg": draw(plan),
        "reference/commands.md": commands(),
        "reference/cost.schema.json": _schema(Report.model_json_schema()),
        "reference/controls.md": catalogue_markdown(),
        "reference/diagnosis-rules.md": rules(),
        "reference/diagnosis.schema.json": _schema(diagnosis_schema()),
        "reference/exit-codes.md": exit_codes(),
        "reference/history.schema.json": _schema(history_schema()),
        "reference/plan-network.schema.json": _schema(Answer.model_json_schema(mode="serialization")),
        "reference/proofs.md": proofs(plan),
        "reference/spec.schema.json": _schema(schema()),
        "reference/workload.schema.json": _schema(Workload.model_json_schema()),
    }


def _schema(found: dict[str, Any]) -> str:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def commands() -> str:
    """The commands' help as Markdown. The list of commands is not cut at the width of a terminal."""
    from typer.cli import get_docs_for_click

    group = typer.main.get_group(app)
    context = typer.Context(group, info_name="muster")
    with context:
        text = get_docs_for_click(obj=group, ctx=context, name="muster", title="Commands")

    made, at = [], group
    for line in text.splitlines():
        if heading := re.fullmatch(r"#{1,3} `muster((?: [a-z-]+)*)`", line):
            at = group
            for name in heading[1].split():
                at = at.commands.get(name, at) if isinstance(at, typer.core.TyperGroup) else at
        entry = re.match(r"\* `([a-z][a-z-]*)`: ", line)
        found = at.commands.get(entry[1]) if entry and isinstance(at, typer.core.TyperGroup) else None
        if entry and found:
            anchor = "-".join(["muster", *([] if at is group else [at.name or ""]), entry[1]])
            line = f"* [`{entry[1]}`](#{anchor}): {(found.help or '').splitlines()[0]}"
        made.append(line)
    return "\n".join(made).rstrip() + "\n"


def proofs(plan: ClusterPlan) -> str:
    """Every proof with what it promises, and every rule on versions."""
    lines = [
        "# Proofs",
        "",
        "What a design must have before anything is built. `muster plan` prints them all with their numbers. A spec",
        "may accept one that fails, under `exceptions`, with a reason; it is still shown as failed.",
        "",
        "| proof | promise | look first at |",
        "|---|---|---|",
    ]
    # The last of the plan's proofs is the one on exceptions, which no function of PROOFS makes.
    functions = [*PROOFS, None]
    for function, proof in zip(functions, prove(plan), strict=True):
        more = " ".join(_more(function).split())
        field = re.sub(r"\[\d+\]", "[]", proof.fields[0])
        lines.append(f"| `{proof.id}` | {proof.title}{'. ' + more if more else ''} | `{field}` |")
    lines += [
        "",
        "## Versions",
        "",
        "Rules on the components of a pin set, from `policies/compatibility.yaml`. One is a proof of a design",
        "(`pins.RULE`) where the pin set has what it is about; a version that is not pinned proves nothing.",
        "",
        "| rule | asks | why |",
        "|---|---|---|",
        *(f"| `{rule.id}` | {_asks(rule)} | {rule.why} · {rule.source} |" for rule in load_rules()),
    ]
    return "\n".join(lines) + "\n"


def rules() -> str:
    """What `muster diagnose` knows, by symptom."""
    lines = [
        "# What a diagnosis knows",
        "",
        "Every rule of `muster diagnose`, by what people see. A line that one is found in is a cause, confirms one,",
        "is a consequence (`cascade`), says only that the job is being ended (`teardown`), or how far it came",
        "(`progress`). `muster rules` prints the same. Each is a file in `validation/diagnose/rules/`, with the texts",
        "that it is tested on.",
    ]
    known = diagnosis_rules()
    for symptom in Symptom:
        mine = [rule for rule in known if rule.symptom is symptom]
        if mine:
            lines += [
                "",
                f"## `{symptom.value}`: {symptom.words}",
                "",
                "| rule | part | means | to mend it | known from |",
                "|---|---|---|---|---|",
            ]
        lines += [
            f"| `{rule.id}` | {rule.role.value} | {_cell(rule.title)} | {_cell('; '.join(rule.fix))} "
            f"| {' '.join(f'`{each}`' for each in rule.sources)} |"
            for rule in mine
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([|<*_`\[])", r"\\\1", " ".join(text.split()))


def exit_codes() -> str:
    """What the processes of a training job end with, and after which failures."""
    said = _said_of_members(Exit)
    lines = [
        "# Exit codes of a training job",
        "",
        "Every rank that uses `runtime/` ends with one of these. `python -m runtime.stops.launch`, which takes",
        "torchrun's arguments, ends with the worst of its ranks' codes; torchrun itself ends with 1 whatever they",
        "were. `srun` ends with the highest, which is the worst.",
        "",
        "| code | name | meaning |",
        "|---|---|---|",
        *(f"| {code.value} | `{code.name}` | {said[code.name]} |" for code in Exit),
        "",
        "Other codes are not the runtime's: 1 and 2 are Python's own (1 also of a process that native code held beyond",
        "the watchdog's limit), and 128 + n or -n say that signal n ended the process, 9 mostly for memory or after a",
        "grace.",
        "",
        "## Failures",
        "",
        "An emergency save is tried only where the rank's state can still be read, and never in the middle of an",
        "optimizer's step.",
        "",
        "| failure | code | emergency save | what to do |",
        "|---|---|---|---|",
        *(
            f"| `{kind}` | {each.exit.value} | {'yes' if each.saveable else 'no'} | {each.advice} |"
            for kind, each in TREATMENTS.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _said_of_members(enum: type) -> dict[str, str]:
    """The string below each member of an enumeration, which Python keeps only in the source."""
    body = ast.parse(inspect.getsource(enum)).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{enum} is no class")
    return {
        member.targets[0].id: inspect.cleandoc(said.value.value)
        for member, said in itertools.pairwise(body.body)
        if isinstance(member, ast.Assign)
        and isinstance(member.targets[0], ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
    }


def _more(function: object) -> str:
    """What a proof's docstring says beyond its first paragraph, which the title says too."""
    inner = function.func if isinstance(function, functools.partial) else function
    return (inspect.getdoc(inner) or "").partition("\n\n")[2] if inner else ""


def _asks(rule: Rule) -> str:
    if rule.same:
        parts = f" in {rule.parts} part{'s' if rule.parts > 1 else ''}" if rule.parts else ""
        return f"{' and '.join(rule.same)} equal{parts}"
    when, needs = ([f"{name} {versions}" for name, versions in each.items()] for each in (rule.when, rule.needs))
    return f"{', '.join(when)} needs {', '.join(needs)}"


def main() -> None:
    """Writes every page."""
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
