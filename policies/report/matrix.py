"""Nodes × controls of a run: what HTML, JSON and JUnit all count, so that they cannot disagree."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.evidence import Run
from policies.verdict import Severity, State, Verdict

WORST_FIRST = (
    State.FAIL,
    State.ERROR,
    State.UNREACHABLE,
    State.NOT_EVALUATED,
    State.WAIVED,
    State.NOT_APPLICABLE,
    State.PASS,
)

EXAMINATION = "examination"
"""Stands for all controls where not one was judged: a report of nothing shows nothing as good."""


@dataclass(frozen=True)
class Matrix:
    """Every node of the plan by every control that was judged on any; a cell that nobody judged is `not_evaluated`."""

    nodes: tuple[str, ...]
    controls: tuple[str, ...]
    cells: Mapping[tuple[str, str], Verdict]

    def cell(self, node: str, control: str) -> Verdict:
        """The verdict of a control on a node."""
        return self.cells[node, control]

    def row(self, node: str) -> tuple[Verdict, ...]:
        """A node's verdicts, in the controls' order."""
        return tuple(self.cells[node, control] for control in self.controls)

    def column(self, control: str) -> tuple[Verdict, ...]:
        """A control's verdicts, in the nodes' order."""
        return tuple(self.cells[node, control] for node in self.nodes)

    @property
    def totals(self) -> dict[State, int]:
        """Cells by state, every state named. They sum to nodes × controls."""
        counted = Counter(verdict.state for verdict in self.cells.values())
        return {state: counted[state] for state in State}

    @property
    def areas(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Controls by the first part of their id, in the controls' order."""
        found: dict[str, list[str]] = {}
        for control in self.controls:
            found.setdefault(_area(control), []).append(control)
        return tuple((area, tuple(members)) for area, members in found.items())


def matrix(run: Run) -> Matrix:
    """The matrix of a run. Pure.

    A node that has verdicts but is not in the plan is shown too. Of two verdicts on one control the worse counts.
    """
    planned = [node.name for node in run.plan.nodes]
    strangers = sorted({verdict.node for verdict in run.verdicts} - set(planned))
    controls = _ordered(verdict.control for verdict in run.verdicts) or (EXAMINATION,)
    told: dict[tuple[str, str], Verdict] = {}
    titles: dict[str, Verdict] = {}
    for verdict in run.verdicts:
        key = verdict.node, verdict.control
        titles.setdefault(verdict.control, verdict)
        if key not in told or _rank(verdict) < _rank(told[key]):
            told[key] = verdict
    unreachable = {each.node: each.unreachable for each in run.examinations if each.unreachable}
    nodes = (*planned, *strangers)
    cells = {
        (node, control): told.get((node, control)) or _absent(node, control, titles.get(control), unreachable.get(node))
        for node in nodes
        for control in controls
    }
    return Matrix(nodes=nodes, controls=controls, cells=cells)


def _ordered(controls: Iterable[str]) -> tuple[str, ...]:
    """In the order in which they come, which is the catalogue's, with those of one area side by side."""
    once = list(dict.fromkeys(controls))
    areas = list(dict.fromkeys(_area(control) for control in once))
    return tuple(sorted(once, key=lambda control: areas.index(_area(control))))


def _area(control: str) -> str:
    return control.partition(".")[0]


def _rank(verdict: Verdict) -> int:
    return WORST_FIRST.index(verdict.state)


def _absent(node: str, control: str, like: Verdict | None, unreachable: str | None) -> Verdict:
    return Verdict(
        control=control,
        node=node,
        state=State.UNREACHABLE if unreachable else State.NOT_EVALUATED,
        severity=like.severity if like else Severity.CRITICAL,
        title=like.title if like else "The node was examined",
        expected=like.expected if like else "",
        reason=unreachable or "the run has no verdict of it",
    )
