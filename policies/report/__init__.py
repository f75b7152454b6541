"""The report of a run: one HTML page for people, JSON and JUnit for machines, with the same counts in all three."""

import json
from dataclasses import dataclass
from pathlib import Path

from policies.evidence import Run, write
from policies.report.data import data
from policies.report.efficiency import Efficiency
from policies.report.junit import junit
from policies.report.matrix import Matrix, matrix
from policies.report.page import page

__all__ = ["Efficiency", "Matrix", "Paths", "data", "junit", "matrix", "page", "write_report"]


@dataclass(frozen=True)
class Paths:
    """Where a report was written."""

    html: Path
    json: Path
    junit: Path


def write_report(run: Run, folder: Path, efficiency: Efficiency | None = None) -> Paths:
    """Writes `index.html`, `report.json` and `junit.xml` into a folder that exists. Raises OSError."""
    table = matrix(run)
    paths = Paths(html=folder / "index.html", json=folder / "report.json", junit=folder / "junit.xml")
    write(paths.html, page(run, table, efficiency))
    write(paths.json, json.dumps(data(run, table), indent=1))
    write(paths.junit, junit(run, table).decode("utf-8"))
    return paths
