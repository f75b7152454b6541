"""The run as JUnit XML: one suite a node, one case a control; then the fabric and the gate."""

from collections.abc import Iterable

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from policies.evidence import Run
from policies.exits import Exit
from policies.report.matrix import Matrix
from policies.report.visible import value, visible
from policies.verdict import State, Verdict

_RESULTS = {
    State.FAIL: Failure,
    State.ERROR: Error,
    State.UNREACHABLE: Error,
    State.NOT_EVALUATED: Error,
    State.WAIVED: Skipped,
    State.NOT_APPLICABLE: Skipped,
}
"""A state that is not here is a pass. What could not be judged is an error, never a skip: a skip looks harmless."""


_STATES = {Exit.PASS: State.PASS, Exit.FAIL: State.FAIL, Exit.INVALID: State.FAIL}
"""How a gate's exit code is told; what is not here is an error."""


def junit(run: Run, matrix: Matrix) -> bytes:
    """The XML, UTF-8. Its counts of the nodes' suites are the matrix's totals."""
    report = JUnitXml(name=f"muster {visible(run.plan.name)} {run.id}")
    for node in matrix.nodes:
        report.append(_suite(visible(node), run, (_control(verdict) for verdict in matrix.row(node))))
    report.append(_suite("fabric", run, _fabric(run)))
    report.append(_suite("gate", run, [_gate(run)]))
    report.update_statistics()
    return bytes(report.tostring())


def _suite(name: str, run: Run, cases: Iterable[TestCase]) -> TestSuite:
    suite = TestSuite(name)
    suite.timestamp = run.started.isoformat(timespec="seconds")
    suite.add_testcases(list(cases))
    return suite


def _control(verdict: Verdict) -> TestCase:
    parts = [verdict.state.value]
    if verdict.waiver:
        until = f"{verdict.waiver.expires:%Y-%m-%d %H:%M %Z}"
        parts.append(f"{verdict.waiver.id} until {until}: {verdict.waiver.reason} (really {verdict.waiver.real.value})")
    parts += [verdict.reason, f"found {value(verdict.found)}" if verdict.found is not None else ""]
    parts += [f"expected {verdict.expected}" if verdict.expected else "", verdict.repair]
    return _case(verdict.control, visible(verdict.node), verdict.state, " · ".join(part for part in parts if part))


def _fabric(run: Run) -> list[TestCase]:
    if run.fabric is None:
        return [_case("fabric", "fabric", State.NOT_EVALUATED, "the fabric was not tested")]
    found = [_case("fabric", "fabric", run.fabric.state, run.fabric.reason or "; ".join(run.fabric.faults[:5]))]
    for pair in run.fabric.pairs:
        state = State.PASS if pair.ok else State.ERROR if pair.gbps is None else State.FAIL
        figure = pair.reason or f"{pair.gbps} Gb/s, at least {pair.floor_gbps} expected"
        found.append(_case(f"rail-{pair.rail} {pair.a} {pair.b}", "fabric.pairs", state, figure))
    for sweep in run.fabric.sweeps:
        state = State.PASS if sweep.ok else State.FAIL
        found.append(_case(f"{sweep.op} {sweep.backend}", "fabric.sweeps", state, "; ".join(sweep.faults)))
    return found


def _gate(run: Run) -> TestCase:
    if run.gate is None:
        return _case("gate", "gate", State.NOT_EVALUATED, "the gate was not asked")
    reasons = "; ".join(f"{each.subject}: {each.message}" for each in run.gate.reasons)
    return _case(f"{run.gate.wanted.value} gate", "gate", _STATES.get(run.gate.exit_code, State.ERROR), reasons)


def _case(name: str, classname: str, state: State, message: str) -> TestCase:
    case = TestCase(visible(name), classname=visible(classname))
    if result := _RESULTS.get(state):
        case.result = [result(visible(message, 1000))]
    return case
