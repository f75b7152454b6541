"""What becomes of a node's answer: only a whole one is complete, and no node is ever left out."""

import asyncio
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.identity import identify
from policies.measurement import Outcome
from spec.load import load
from spec.plan import ClusterPlan, derive
from spec.schema import MachineKind
from validation import suite
from validation.examine import NOT_THERE, examine_nodes, interpret, summary
from validation.node.stream import Writer
from validation.transport import Completed, Local, Unreachable

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 29, 12, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def plan() -> ClusterPlan:
    return derive(load(Path(__file__).parents[2] / "clusters" / "lab-containers.yaml"))


def answer(*records: dict[str, Any], node: str = "gpu-0", identity: Any = None) -> Completed:
    out = io.BytesIO()
    writer = Writer(out)
    writer.header(node=node, identity={"machine_id": "0" * 32} if identity is None else identity)
    for record in records:
        writer.measurement(**record)
    writer.close()
    return Completed("gpu-0", 0, out.getvalue(), b"")


ONE = {"measure": "gpu.count", "outcome": "measured", "value": 8}


def test_a_whole_answer_is_complete_and_its_times_are_the_controllers() -> None:
    found = interpret("gpu-0", answer(ONE), "d" * 64, NOW, LATER)
    assert found.complete
    assert (found.started, found.finished) == (NOW, LATER)
    assert found.fault is None
    counted = found.measured("gpu.count")
    assert counted
    assert counted.value == 8


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (answer(ONE, ONE), "gpu.count was told twice"),
        (answer(ONE, {"measure": "gpu.model", "outcome": "fine"}), "'gpu.model' is not a measurement"),
        (answer({**ONE, "colour": "green"}), "'gpu.count' is not a measurement"),
        (answer({"measure": "../x", "outcome": "measured"}), "is not a measurement"),
        (answer({"measure": "gpu.model", "outcome": "error"}), "without a reason"),
        (answer(ONE, node="gpu-1"), "'gpu-1' answered instead"),
        (Completed("gpu-0", 0, b"", b""), "the suite ended with 0"),
        (Completed("gpu-0", 1, b"", b"sudo: a password is required\n"), "a password is required"),
        (Completed("gpu-0", 0, b"Welcome to gpu-0!\n", b""), "not to be believed"),
        (Completed("gpu-0", None, answer(ONE).stdout[:-20], b"", "no end within 60 s"), "no end within 60 s"),
    ],
)
def test_whatever_is_wrong_with_an_answer_it_is_not_complete_and_says_why(told: Completed, why: str) -> None:
    found = interpret("gpu-0", told, "d" * 64, NOW, LATER)
    assert not found.complete
    assert found.finished is None
    assert why in (found.fault or "")
    assert found.unreachable is None
    assert why in summary(found)


def test_what_was_told_twice_is_not_known() -> None:
    assert interpret("gpu-0", answer(ONE, ONE), "d" * 64, NOW, LATER).measured("gpu.count") is None


def test_an_answer_that_came_whole_before_the_time_was_over_is_whole() -> None:
    """A process that hangs in the kernel keeps the connection open after the suite has told everything."""
    told = Completed("gpu-0", None, answer(ONE).stdout, b"", "no end within 60 s")
    assert interpret("gpu-0", told, "d" * 64, NOW, LATER).complete


@pytest.mark.parametrize("identity", ["", [], 7, {"machine_id": {"deep": ["er"]}}])
def test_a_strange_identity_never_raises(identity: Any) -> None:
    assert interpret("gpu-0", answer(ONE, identity=identity), "d" * 64, NOW, LATER).node == "gpu-0"


@given(st.binary(max_size=300), st.binary(max_size=100), st.sampled_from([None, 0, 1, 67, 254]))
def test_garbage_never_raises_and_is_never_complete(stdout: bytes, stderr: bytes, status: int | None) -> None:
    found = interpret(
        "gpu-0", Completed("gpu-0", status, stdout, stderr, None if status else "x"), "d" * 64, NOW, LATER
    )
    assert not found.complete
    assert not found.measurements


@given(
    st.dictionaries(st.text(max_size=12), st.none() | st.integers() | st.text(max_size=12) | st.booleans(), max_size=5)
)
def test_hostile_records_never_raise(record: dict[str, Any]) -> None:
    record = {key: value for key, value in record.items() if key != "record"}
    try:
        told = answer(record)
    except (TypeError, UnicodeEncodeError):
        return
    assert interpret("gpu-0", told, "d" * 64, NOW, LATER).node == "gpu-0"


class Nodes:
    """Nodes that answer as they are told to."""

    as_root: tuple[str, ...] = ("sudo", "-n")

    def __init__(self, **answers: Any) -> None:
        self.answers = {name.replace("_", "-"): told for name, told in answers.items()}
        self.asked: list[tuple[str, Sequence[str], bytes]] = []

    async def run(
        self,
        node: str,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout: float = 60,  # noqa: ARG002
    ) -> Completed:
        self.asked.append((node, argv, stdin))
        told = self.answers[node]
        if isinstance(told, list):
            told = told.pop(0)
        if isinstance(told, Exception):
            raise told
        assert isinstance(told, Completed)
        return told


def examine_all(plan: ClusterPlan, nodes: Nodes, names: Sequence[str], **options: Any) -> Any:
    return asyncio.run(examine_nodes(plan, nodes, names, **options))


def test_every_node_that_was_asked_for_is_in_the_result_whatever_happened_to_it(plan: ClusterPlan) -> None:
    nodes = Nodes(gpu_0=answer(ONE), gpu_1=Unreachable("Connection refused"), control_0=Completed("", 3, b"", b"no"))
    lines: list[str] = []
    found = examine_all(plan, nodes, ["control-0", "gpu-1", "gpu-0"], say=lines.append)
    assert list(found) == ["control-0", "gpu-1", "gpu-0"]
    assert found["gpu-0"].complete
    assert found["gpu-1"].unreachable == "Connection refused"
    assert (found["control-0"].complete, found["control-0"].unreachable) == (False, None)
    assert {each.suite_digest for each in found.values()} == {suite.digest()}
    assert len(lines) == 3
    assert "3 of 3" in lines[-1]


def test_a_node_is_told_what_is_expected_of_it(plan: ClusterPlan) -> None:
    nodes = Nodes(gpu_0=answer(ONE))
    examine_all(plan, nodes, ["gpu-0"], only=["gpu.count"], limit_s=30)
    request = json.loads(nodes.asked[0][2])
    assert request["node"] == "gpu-0"
    assert request["expectations"]["gpu.count"] == 8
    assert request["options"] == {"limit_s": 30, "patience": 1, "only": ["gpu.count"]}


def test_a_machine_that_may_be_emulated_gets_more_time_for_each_measurement_and_for_all(plan: ClusterPlan) -> None:
    group = next(each for each in plan.spec.nodes if each.name == "gpu")
    emulated = group.model_copy(update={"machine": MachineKind.VM})
    spec = plan.spec.model_copy(update={"nodes": (*(each for each in plan.spec.nodes if each != group), emulated)})
    nodes = Nodes(gpu_0=answer(ONE))
    examine_all(derive(spec), nodes, ["gpu-0"], limit_s=30)
    told = json.loads(nodes.asked[0][2])["options"]
    assert told["patience"] > 1
    assert told["limit_s"] == 30 * told["patience"]


def test_a_node_without_the_suite_gets_it_once(plan: ClusterPlan) -> None:
    gone, took = Completed("gpu-0", NOT_THERE, b"", b""), Completed("gpu-0", 0, b"", b"")
    nodes = Nodes(gpu_0=[gone, took, answer(ONE)])
    assert examine_all(plan, nodes, ["gpu-0"])["gpu-0"].complete
    assert [len(stdin) for _, _, stdin in nodes.asked][1] == suite.build().stat().st_size
    refused = Nodes(gpu_0=[gone, Completed("gpu-0", 1, b"", b"No space left on device\n")])
    assert "No space left on device" in examine_all(plan, refused, ["gpu-0"])["gpu-0"].unreachable


def test_no_node_is_an_error(plan: ClusterPlan) -> None:
    with pytest.raises(ValueError, match="no node to examine"):
        examine_all(plan, Nodes(), [])
    with pytest.raises(ValueError, match="named twice"):
        examine_all(plan, Nodes(), ["gpu-0", "gpu-0"])
    with pytest.raises(LookupError, match="gpu-9"):
        examine_all(plan, Nodes(), ["gpu-9"])


def test_the_real_suite_examines_this_machine(plan: ClusterPlan, tmp_path: Path) -> None:
    """Sent, checked, damaged, sent again: over the local transport."""
    folder = tmp_path / "cache"

    def look() -> Any:
        only = ["cpu.count", "memory.total_gib", "network.interfaces", "gpu.count"]
        return asyncio.run(examine_nodes(plan, Local(), ["control-0"], only=only, folder=str(folder)))["control-0"]

    found = look()
    assert found.complete, found.fault
    assert len(found.measurements) == 4
    assert found.measured("cpu.count").outcome is Outcome.MEASURED
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes() + b"#")
    assert look().complete
    assert path.read_bytes() == suite.build().read_bytes(), "a changed suite is never run"


def test_the_identity_of_this_machine_is_one_that_certificates_take(plan: ClusterPlan, tmp_path: Path) -> None:
    found = asyncio.run(examine_nodes(plan, Local(), ["control-0"], only=["cpu.count"], folder=str(tmp_path)))[
        "control-0"
    ]
    assert identify(found).macs
