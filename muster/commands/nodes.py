"""Commands about nodes: certify, verify, status, drift, converge."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from securesystemslib.signer import Key

from muster.admission import admit, pool_nodes
from muster.certify import certify as run_certification
from muster.certify import fault
from muster.console import Problem, document, out, result, say, table
from muster.efficiency import efficiency
from muster.standing import DEFAULT_STACK, Standing, standing
from policies import evidence, keys
from policies.certificate import CertificateError, verify
from policies.evidence import Run
from policies.exits import Exit
from policies.reading import PolicyError
from policies.refusal import Refusal
from policies.report import Paths, write_report
from policies.verdict import State, Verdict
from pool.decision import PoolNode
from pool.slurm import Applied
from validation.diagnose.history import died, load_limits
from validation.diagnose.records import HistoryError, records

Stack = Annotated[str, typer.Option("--stack", envvar="MUSTER_STACK", help="The stack whose cluster it is.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Names = Annotated[list[str] | None, typer.Argument(help="Names of nodes; all where none is given.")]

MARKS = {
    State.PASS: ("✓", "green"),
    State.NOT_APPLICABLE: ("–", "dim"),
    State.WAIVED: ("w", "yellow"),
    State.FAIL: ("✗", "bold red"),
    State.ERROR: ("!", "bold red"),
    State.UNREACHABLE: ("?", "bold red"),
    State.NOT_EVALUATED: ("○", "bold red"),
}

MOST_FAULTS = 5
"""Faults of the fabric that are printed; the report has all."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("certify")(certify)
    app.command("verify")(verify_certificates)
    app.command("status")(status)


def certify(nodes: Names = None, stack: Stack = DEFAULT_STACK, as_json: Json = False) -> int:
    """Examine nodes, sign a certificate for each that passed, and open it in the pool."""
    done = certification(stack, nodes or [])
    if as_json:
        document({"run": done.run.model_dump(mode="json"), "pool": done.pool(), "report": files(done.report)})
    else:
        done.show()
    return done.exit


@dataclass(frozen=True)
class Certification:
    """A certification run that is over: what it found, its report, and what it changed in the pool."""

    run: Run
    report: Paths
    nodes: Mapping[str, PoolNode]
    applied: tuple[Applied, ...]

    @property
    def exit(self) -> Exit:
        """That of the run; an error where the pool could not be made to follow it."""
        return Exit.ERROR if any(each.problem for each in self.applied) else exit_of(self.run)

    def pool(self) -> list[dict[str, Any]]:
        """What was changed in the pool, as JSON."""
        return [applied(each) for each in self.applied]

    def certificates(self) -> dict[str, dict[str, Any]]:
        """Each node's certificate, or why it has none, as JSON."""
        return {
            name: {
                "certified": given.certificate is not None,
                "expires": given.certificate.expires.isoformat() if given.certificate else None,
                "refused": list(given.refused),
            }
            for name, given in self.run.awards.items()
        }

    def show(self) -> None:
        """Prints it for people."""
        _show(self.run, self.nodes)
        problems(self.applied)
        result(f"report: {self.report.html}")


def certification(stack: str, names: list[str]) -> Certification:
    """Examines nodes, all where none is named, and keeps what follows: report, certificates, places in the pool."""
    cluster = standing(stack)
    chosen = cluster.chosen(names)
    say(f"examining {len(cluster.plan.nodes)} of {len(cluster.plan.nodes)} nodes")
    with cluster.alone():
        run = asyncio.run(run_certification(cluster, chosen, say))
        folder = evidence.save(run, cluster.reports, datetime.now(UTC))
        report = write_report(run, folder, efficiency(folder))
        refused = {name: given.refused[0] for name, given in run.awards.items() if given.refused}
        nodes, done = admit(cluster, refused | others_at_fault(run), {each.node: each for each in run.examinations})
    return Certification(run, report, nodes, done)


def files(report: Paths) -> dict[str, str]:
    """Where a report was written, as JSON."""
    return {"html": str(report.html), "json": str(report.json), "junit": str(report.junit)}


def others_at_fault(run: Run) -> dict[str, str]:
    """Nodes that nobody asked for and that the run found at fault, and for what: they lose their certificates too."""
    names = [node.name for node in run.plan.nodes if node.name not in run.awards]
    return {name: why for name in names if (why := fault(name, run.verdicts, run.fabric))}


def problems(done: Iterable[Applied]) -> None:
    """Prints what could not be done in the pool."""
    for each in done:
        if each.problem:
            result(Text(f"pool: {each.action.node}: {each.problem}", style="bold red"))


def applied(each: Applied) -> dict[str, Any]:
    """What was done to a node of the pool, as JSON."""
    return {"node": each.action.node, "step": each.action.step.value, "problem": each.problem}


def exit_of(run: Run) -> Exit:
    """0 where every node that was asked for got a certificate and no fault was found between them; else what weighs
    most of what kept them from it.
    """
    refused = [name for name, given in run.awards.items() if given.refused]
    states = {verdict.state for verdict in run.verdicts if verdict.node in refused and verdict.keeps_out}
    states |= {run.fabric.state} if run.fabric else set()
    if State.FAIL in states:
        return Exit.FAIL
    if states & {State.ERROR, State.UNREACHABLE}:
        return Exit.ERROR
    return Exit.INCOMPLETE if refused else Exit.PASS


def _show(run: Run, pool: Mapping[str, PoolNode]) -> None:
    for name, given in run.awards.items():
        verdicts = [verdict for verdict in run.verdicts if verdict.node == name]
        counts = ", ".join(
            f"{count} {state.value.replace('_', ' ')}"
            for state in State
            if (count := sum(verdict.state is state for verdict in verdicts))
        )
        if given.certificate:
            until = f"certified until {given.certificate.expires:%-d %b %H:%M} UTC{_in_pool(pool.get(name))}"
            result(Text.assemble((f"{name:<12}", "bold"), f"{counts:<44} ", (until, "green")))
        else:
            result(
                Text.assemble(
                    (f"{name:<12}", "bold"), f"{counts:<44} ", (f"refused{_in_pool(pool.get(name))}", "bold red")
                )
            )
        for verdict in verdicts:
            if verdict.state in (State.FAIL, State.ERROR, State.UNREACHABLE, State.NOT_EVALUATED):
                result(_line(verdict))
        told = {reason for reason in given.refused if not any(reason.startswith(v.control) for v in verdicts)}
        for reason in sorted(told):
            result(Text(f"            {reason}", "red"))
    for name, why in others_at_fault(run).items():
        line = f"not asked for, but at fault, so without a certificate{_in_pool(pool.get(name))}: {why}"
        result(Text.assemble((f"{name:<12}", "bold"), (line, "bold red")))
    if run.fabric and run.fabric.state is not State.PASS:
        for reason in run.fabric.faults[:MOST_FAULTS] or (run.fabric.reason,):
            result(Text.assemble(("fabric      ", "bold"), (f"{run.fabric.state.value}: {reason}", "bold red")))
    for note in dict.fromkeys([*run.site.simulated, *(run.fabric.simulated if run.fabric else ())]):
        result(Text(f"not real: {note}", "dim"))
    good = sum(1 for given in run.awards.values() if given.certificate)
    result(f"{good} certified, {len(run.awards) - good} refused")


def _in_pool(node: PoolNode | None) -> str:
    """A node's place in the pool, for the end of a line: empty where it is no node of the pool."""
    if node is None:
        return ""
    return f", closed by {node.closer.value}" if node.closed else ", open"


def _line(verdict: Verdict) -> Text:
    mark, style = MARKS[verdict.state]
    words = verdict.reason or verdict.expected
    repair = f" · {verdict.repair}" if verdict.repair else ""
    return Text.assemble("          ", (mark, style), f" {verdict.control}  {words}{repair}")


def status(
    stack: Stack = DEFAULT_STACK,
    history: Annotated[
        Path | None,
        typer.Option(envvar="MUSTER_HISTORY", help="The history's folder: also how many jobs died on each node."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show every node's certificate and its place in the pool. Changes nothing, examines nothing."""
    cluster = standing(stack)
    lost = _died(history) if history else None
    pool = pool_nodes(cluster)
    wanted = [(cluster.certificate(each.name), each.name) for each in cluster.plan.nodes]
    rows = _verified(wanted, None, cluster.trusted(), cluster)
    if as_json:
        places = [pool[row["node"]].state if row["node"] in pool else None for row in rows]
        more = [{} if lost is None else {"jobs_died": lost.get(row["node"], 0)} for row in rows]
        document([{**row, "pool": place, **died} for row, place, died in zip(rows, places, more, strict=True)])
        return Exit.PASS
    shown = table("node", "roles", "certificate", "pool", "reason", *([] if lost is None else ["jobs died"]))
    for node, row in zip(cluster.plan.nodes, rows, strict=True):
        place = pool.get(node.name)
        words = row["words"].removeprefix(f"{node.name}: ") if row["holds"] else row["kind"]
        shown.add_row(
            node.name,
            ", ".join(role.value for role in node.roles),
            Text(words, "green" if row["holds"] else "red"),
            place.state if place else "–",
            place.reason if place else "",
            *([] if lost is None else [str(lost.get(node.name, 0))]),
        )
    out.print(shown)
    return Exit.PASS


def _died(folder: Path) -> dict[str, int]:
    """How many jobs died on each node, in the days that `muster history` looks at. Raises Problem."""
    try:
        found, wrong = records(folder, datetime.now(UTC) - timedelta(days=load_limits().days))
    except (HistoryError, PolicyError) as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    for each in wrong:
        say(f"not read: {each}")
    return died(found)


Files = Annotated[list[Path] | None, typer.Argument(help="Certificates; those of the stack where none is given.")]
PublicKeys = Annotated[
    list[Path] | None, typer.Option("--key", help="A trusted public key (PEM); those of the stack where none is given.")
]


def verify_certificates(
    files: Files = None,
    stack: Stack = DEFAULT_STACK,
    key: PublicKeys = None,
    node: Annotated[str | None, typer.Option(help="The node that must have been certified.")] = None,
    identity: Annotated[str | None, typer.Option(help="Digest of the hardware identity that it must have now.")] = None,
    as_json: Json = False,
) -> int:
    """Check certificates, offline: signature, node, hardware, expiry; the stack's own also by its spec, pins, images.

    Exit 5 where one does not hold.
    """
    try:
        trusted = keys.trusted(key) if key else standing(stack).trusted()
    except keys.KeyFileError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    cluster = None if files else standing(stack)
    wanted = [(path, node) for path in files or ()]
    if cluster:
        chosen = cluster.chosen([node] if node else [])
        wanted = [(cluster.certificate(each.name), each.name) for each in chosen]
    rows = _verified(wanted, identity, trusted, cluster)
    if as_json:
        document(rows)
    else:
        for row in rows:
            mark = ("✓ ", "green") if row["holds"] else ("✗ ", "bold red")
            result(Text.assemble(mark, row["words"]))
    return Exit.PASS if all(row["holds"] for row in rows) else Exit.INVALID


def _verified(
    wanted: Iterable[tuple[Path, str | None]],
    identity: str | None,
    trusted: tuple[Key, ...],
    cluster: Standing | None,
) -> list[dict[str, Any]]:
    """Certificates and whose they must be, as rows; `cluster` where they must be of that cluster as it stands."""
    refusals = cluster.refusals() if cluster else {}
    return [_row(path, node, identity, trusted, cluster, refusals.get(node or "")) for path, node in wanted]


def _row(
    path: Path,
    node: str | None,
    identity: str | None,
    trusted: tuple[Key, ...],
    cluster: Standing | None,
    refused: Refusal | None,
) -> dict[str, Any]:
    try:
        held = verify(
            _bounded(path),
            trusted,
            datetime.now(UTC),
            node=node,
            identity=identity,
            cluster=cluster.plan.name if cluster else None,
            spec=cluster.plan.digest if cluster else None,
            pins=cluster.pins.digest if cluster else None,
            image=cluster.deployment.images.get(node) if cluster and node else None,
            refused=refused,
        )
    except FileNotFoundError:
        return {
            "file": str(path),
            "node": node,
            "holds": False,
            "kind": "Missing",
            "words": f"{path}: there is no certificate",
        }
    except (CertificateError, OSError) as error:
        kind = type(error).__name__
        return {"file": str(path), "node": node, "holds": False, "kind": kind, "words": f"{path}: {kind}: {error}"}
    worth = f"{held.certificate_class.value} certificate until {held.expires:%-d %b %H:%M} UTC"
    return {
        "file": str(path),
        "node": held.node,
        "holds": True,
        "words": f"{held.node}: {worth}, {len(held.passed)} controls passed",
        "certificate": held.model_dump(mode="json"),
    }


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1024 * 1024)
