"""A rail that shall carry RDMA is measured with RDMA, in both directions, or not at all."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.measurement import Examination, Measurement, Outcome
from spec.load import load
from spec.plan import ClusterPlan, derive
from validation.fabric import perftest
from validation.fabric.pairs import measure_pair
from validation.fabric.perftest import Port, ports, read
from validation.transport import Completed, Unreachable

ROOT = Path(__file__).parents[2]
RECORDED = (Path(__file__).parent / "recorded" / "ib_write_bw-soft-roce.txt").read_bytes()
REFUSED = (Path(__file__).parent / "recorded" / "ib_write_bw-refused.txt").read_bytes()
PORTS = {f"gpu-{i}": Port(device="rxe_rail0", port=1) for i in range(2)}


@pytest.fixture(scope="module")
def plan() -> ClusterPlan:
    """The lab whose rails carry RDMA."""
    return derive(load(ROOT / "clusters" / "lab.yaml"))


class Nodes:
    """Answers a sender with a rate for each direction, and remembers what was run where."""

    as_root = ()

    def __init__(self, rates: dict[str, bytes]) -> None:
        self.rates, self.ran = rates, []

    async def run(self, node: str, argv: Sequence[str], stdin: bytes = b"", timeout: float = 60) -> Completed:  # noqa: ARG002
        self.ran.append((node, [*argv]))
        sends = argv[-1].startswith("10.")
        return Completed(node, 0, self.rates[node] if sends else b"", b"")


def report(messages: str) -> bytes:
    """The recorded report with another number of messages."""
    return RECORDED.replace(b" 65536      31 ", f" 65536      {messages} ".encode())


def test_the_messages_of_a_real_run_within_its_window_are_its_rate():
    gbps, reason = read(RECORDED, b"")
    assert gbps == pytest.approx(31 * 65536 * 8 / 4 / 1e9)
    assert reason == ""


def test_a_refused_connection_says_so_for_the_client_to_try_again():
    gbps, reason = read(b"", REFUSED)
    assert gbps is None
    assert perftest.EARLY in reason


def test_the_worse_direction_counts_and_both_are_measured(plan):
    nodes = Nodes({"gpu-0": report("900"), "gpu-1": report("200")})
    test = asyncio.run(measure_pair(nodes, plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, PORTS))
    assert test.gbps == pytest.approx(0.0262144)
    assert (test.tool, test.ok) == ("ib_write_bw", True)
    assert all("ib_write_bw" in argv for _, argv in nodes.ran)
    senders = {node: argv[-1] for node, argv in nodes.ran if argv[-1].startswith("10.")}
    assert senders == {
        "gpu-0": str(plan.node("gpu-1").address("rail-0")),
        "gpu-1": str(plan.node("gpu-0").address("rail-0")),
    }


def test_a_pair_exchanges_addresses_on_ports_that_the_firewall_lets_in(plan):
    nodes = Nodes({"gpu-0": RECORDED, "gpu-1": RECORDED})
    asyncio.run(measure_pair(nodes, plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, PORTS))
    jobs = plan.spec.networks.fabric.job_ports
    for _, argv in nodes.ran:
        assert jobs.first <= int(argv[argv.index("-p") + 1]) <= jobs.last


def test_where_a_node_has_no_rdma_port_there_is_no_figure_and_no_tcp_instead(plan):
    nodes = Nodes({"gpu-0": RECORDED, "gpu-1": RECORDED})
    test = asyncio.run(measure_pair(nodes, plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, {"gpu-0": PORTS["gpu-0"]}))
    assert (test.gbps, test.ok, nodes.ran) == (None, False, [])
    assert "gpu-1" in test.reason


def test_one_direction_without_a_result_is_no_figure(plan):
    nodes = Nodes({"gpu-0": RECORDED, "gpu-1": b""})
    test = asyncio.run(measure_pair(nodes, plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, PORTS))
    assert test.gbps is None
    assert test.reason.startswith("gpu-1 to gpu-0: ")


@given(st.integers(0, RECORDED.index(b"65536 ") + 20))
def test_a_truncated_report_is_no_figure(length):
    assert read(RECORDED[:length], b"")[0] is None


@pytest.mark.parametrize("messages", ["nan", "inf", "-1", "1.5", "many", "9" * 16])
def test_what_is_no_number_of_messages_is_no_figure(messages):
    assert read(report(messages), b"")[0] is None


def test_a_rail_on_which_nothing_arrives_is_below_any_floor(plan):
    nodes = Nodes({"gpu-0": report("0"), "gpu-1": RECORDED})
    test = asyncio.run(measure_pair(nodes, plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, PORTS))
    assert (test.gbps, test.ok) == (0.0, False)


@pytest.mark.parametrize("gone", [Unreachable("no route to host"), OSError(24, "Too many open files"), TimeoutError()])
def test_a_node_that_is_not_reached_is_no_figure(plan, gone):
    class Nobody(Nodes):
        async def run(self, *_: object, **__: object) -> Completed:
            raise gone

    tested = asyncio.run(measure_pair(Nobody({}), plan, plan.node("gpu-0"), plan.node("gpu-1"), 0, PORTS))
    assert not tested.ok
    assert tested.gbps is None
    assert tested.reason


def test_two_reports_are_none():
    assert read(RECORDED + RECORDED, b"")[0] is None


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_nothing_a_node_prints_raises(output, errors):
    assert read(output, errors)[0] is None


def examined(value: object, outcome: Outcome = Outcome.MEASURED) -> Examination:
    told = Measurement(measure="rdma.ports", outcome=outcome, value=value, reason="told")
    now = datetime.now(UTC)
    return Examination(
        node="gpu-0",
        started=now,
        finished=now,
        complete=True,
        suite_digest="0" * 64,
        identity={},
        measurements=(told,),
    )


def test_ports_are_those_that_the_suite_found_on_the_rail(plan):
    nodes = {"gpu-0": plan.node("gpu-0")}
    told = {
        "rail0": {"device": "mlx5_3", "port": 2, "state": "ACTIVE"},
        "rail1": {"device": "mlx5_4", "port": 1, "state": "ACTIVE"},
    }
    assert ports({"gpu-0": examined(told)}, nodes, 0) == {"gpu-0": Port(device="mlx5_3", port=2)}
    assert ports({"gpu-0": examined(told)}, nodes, 1) == {"gpu-0": Port(device="mlx5_4", port=1)}


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"rail0": "rxe_rail0"},
        {"rail0": {"device": "--help", "port": 1}},
        {"rail0": {"device": "a b", "port": 1}},
        {"rail0": {"device": "", "port": 1}},
        {"rail0": {"device": "rxe\n", "port": 1}},
        {"rail0": {"device": "rxe", "port": 0}},
        {"rail0": {"device": "rxe", "port": True}},
        {"rail1": {"device": "rxe", "port": 1}},
    ],
)
def test_what_is_not_a_ports_name_is_no_port(plan, told):
    assert ports({"gpu-0": examined(told)}, {"gpu-0": plan.node("gpu-0")}, 0) == {}


def test_what_could_not_be_measured_is_no_port(plan):
    told = examined({"rail0": {"device": "rxe", "port": 1}}, Outcome.ERROR)
    assert ports({"gpu-0": told}, {"gpu-0": plan.node("gpu-0")}, 0) == {}
    assert ports({}, {"gpu-0": plan.node("gpu-0")}, 0) == {}
