"""The report as one HTML page that needs nothing beside it: no network, no other file, no script."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from policies.evidence import Run
from policies.fabric import FabricResult
from policies.gate import GateDecision
from policies.report import pictures
from policies.report.efficiency import Efficiency
from policies.report.matrix import EXAMINATION, WORST_FIRST, Matrix
from policies.report.names import fold
from policies.report.template import environment, style
from policies.verdict import Severity, State, Verdict

SYMBOLS = {
    State.PASS: "✓",
    State.FAIL: "✕",
    State.ERROR: "!",
    State.UNREACHABLE: "⌀",
    State.NOT_EVALUATED: "?",
    State.NOT_APPLICABLE: "–",
    State.WAIVED: "w",
}
"""Each state has a sign of its own, so that colour is never the only one."""

WORDS = {
    State.PASS: "passed",
    State.FAIL: "failed",
    State.ERROR: "broke while measured",
    State.UNREACHABLE: "could not be reached",
    State.NOT_EVALUATED: "not evaluated",
    State.NOT_APPLICABLE: "does not apply",
    State.WAIVED: "waived",
}

_HERE = Path(__file__).parent

_MANY = 24
"""Tasks that are shown before the rest is folded away."""


@dataclass(frozen=True)
class Task:
    """Something to do: one control that came out one way, on some nodes."""

    control: str
    title: str
    state: State
    severity: Severity
    nodes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    repair: str
    keeps_out: bool


def page(run: Run, matrix: Matrix, efficiency: Efficiency | None = None) -> str:
    """The page's HTML. Pure: the same run gives the same page."""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            matrix=matrix,
            efficiency=efficiency,
            tasks=tasks(matrix),
            many=_MANY,
            reasons=_reasons(run.gate),
            symbols=SYMBOLS,
            states=State,
            order=[State.PASS, *WORST_FIRST[:-1]],
            style=style() + (efficiency.style if efficiency else ""),
            pairs=pictures.pairs(run.fabric.pairs) if run.fabric else "",
            curve=pictures.curve,
            topology=_drawing(run.topology),
            simulated=_simulated(run),
            fabric=_fabric(run.fabric),
        )
    )


def _environment() -> Environment:
    made = environment(_HERE)
    made.filters.update(fold=fold, short=_short, size=pictures.size, words=WORDS.get)
    return made


def tasks(matrix: Matrix) -> tuple[Task, ...]:
    """What somebody has to do, the gravest first. A waiver that hides a failure is none.

    A node of which nothing at all is known is one task, not one a control.
    """
    dark = {node for node in matrix.nodes if _dark(matrix.row(node))}
    found = []
    for state in _DARK:
        silent = [matrix.row(node) for node in matrix.nodes if node in dark]
        firsts = tuple(next(verdict for verdict in row if verdict.state in _DARK) for row in silent)
        firsts = tuple(verdict for verdict in firsts if verdict.state is state)
        if firsts:
            found.append(_task(EXAMINATION, "Nothing is known of the node", Severity.CRITICAL, firsts))
    for control in matrix.controls:
        column = matrix.column(control)
        for state in (State.FAIL, State.ERROR, *_DARK):
            hit = tuple(verdict for verdict in column if verdict.state is state and verdict.node not in dark)
            if hit:
                found.append(_task(control, hit[0].title, hit[0].severity, hit))
    grave = list(Severity)
    return tuple(
        sorted(found, key=lambda task: (grave.index(task.severity), WORST_FIRST.index(task.state), task.control))
    )


_DARK = (State.UNREACHABLE, State.NOT_EVALUATED)


def _dark(row: tuple[Verdict, ...]) -> bool:
    told = {verdict.state for verdict in row} - {State.NOT_APPLICABLE}
    return bool(told) and told <= set(_DARK)


def _task(control: str, title: str, severity: Severity, hit: tuple[Verdict, ...]) -> Task:
    return Task(
        control=control,
        title=title,
        state=hit[0].state,
        severity=severity,
        nodes=tuple(verdict.node for verdict in hit),
        verdicts=hit,
        repair=next((verdict.repair for verdict in hit if verdict.repair), ""),
        keeps_out=any(verdict.keeps_out for verdict in hit),
    )


def _short(digest: str) -> str:
    return digest[:12]


def _reasons(gate: GateDecision | None) -> list[tuple[str, str]]:
    """What keeps the gate shut, nodes with the same reason together."""
    found: dict[str, list[str]] = {}
    for reason in gate.reasons if gate else ():
        found.setdefault(reason.message, []).append(reason.subject)
    return [(fold(subjects), message) for message, subjects in found.items()]


def _drawing(svg: str | None) -> Markup:
    """As the source of an image: in one, a drawing can neither run a script nor fetch anything."""
    text = base64.b64encode(svg.encode("utf-8", "replace")).decode() if svg else ""
    return Markup("data:image/svg+xml;base64,{}").format(text) if text else Markup("")


def _simulated(run: Run) -> tuple[str, ...]:
    told = [*run.site.simulated, *(run.fabric.simulated if run.fabric else ())]
    for award in run.awards.values():
        told += award.certificate.terms.seen.simulated if award.certificate else ()
    if not told and any(verdict.simulated for verdict in run.verdicts):
        told.append("some measurements are simulated")
    return tuple(dict.fromkeys(told))


def _fabric(fabric: FabricResult | None) -> dict[str, Any]:
    if fabric is None:
        return {"state": State.NOT_EVALUATED, "plateau": None, "floor": None}
    sweep = min(fabric.sweeps, key=lambda each: (each.plateau or 0) / each.floor, default=None)
    return {
        "state": fabric.state,
        "plateau": sweep.plateau if sweep else None,
        "floor": sweep.floor if sweep else None,
    }
