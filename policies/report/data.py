"""The report as data for machines: totals, one entry a cell, and what the page shows beside them."""

from typing import Any

from policies.evidence import Run
from policies.report.matrix import Matrix


def data(run: Run, matrix: Matrix) -> dict[str, Any]:
    """JSON data. Totals are those of the page; measurements themselves are in the run's own file, `run.json`."""
    shown = run.model_dump(
        mode="json", include={"id", "started", "finished", "site", "plan", "digests", "pins", "fabric", "drift"}
    )
    return {
        "version": "muster/report/v1",
        **shown,
        "go": run.gate.go if run.gate else None,
        "gate": run.gate.model_dump(mode="json") if run.gate else None,
        "totals": {state.value: count for state, count in matrix.totals.items()},
        "nodes": len(matrix.nodes),
        "controls": len(matrix.controls),
        "certificates": {
            node: award.model_dump(mode="json", include={"certificate", "refused"})
            for node, award in run.awards.items()
        },
        "verdicts": [
            matrix.cell(node, control).model_dump(mode="json") for node in matrix.nodes for control in matrix.controls
        ],
    }
