"""The lab that people get: GPU nodes with kernels of their own, where RDMA, bonds, limits and clocks are real."""

import time

import pytest
from sabotage import Sabotage, caught_and_repaired, on
from standing_lab import Lab

pytestmark = pytest.mark.vm

OWN_KERNEL = {
    "rdma.ports",
    "rdma.errors",
    "network.bonds",
    "host.limits.memlock",
    "host.limits.nofile",
    "kernel.settings",
}
"""Controls that containers are not examined for."""

SABOTAGES = (
    Sabotage(
        name="chrony stopped and the clock skewed",
        node="gpu-1",
        script="systemctl stop chrony; date --set '+5 seconds'",
        caught=on("gpu-1", controls=("time.offset", "time.synchronised", "time.source", "services.active")),
        closes=("gpu-1",),
    ),
    Sabotage(
        name="a link of a bond down",
        node="gpu-0",
        script="ip link set stor0p1 down",
        caught=on("gpu-0", controls=("network.bonds",)),
        repair="ip link set stor0p1 up",
        closes=("gpu-0",),
    ),
)


def test_nodes_are_certified_by_what_containers_cannot_show(kernels: Lab) -> None:
    for row in kernels.told("verify"):
        certificate = row["certificate"]
        if row["node"].startswith("gpu-"):
            assert certificate["terms"]["seen"]["machine"] == "vm"
            assert set(certificate["passed"]) >= OWN_KERNEL
    assert kernels.pool() == {"gpu-0": "idle", "gpu-1": "idle"}


def test_rails_are_measured_over_rdma(kernels: Lab) -> None:
    pairs = kernels.last_run()["fabric"]["pairs"]
    assert {(pair["rail"], pair["tool"]) for pair in pairs} == {(0, "ib_write_bw"), (1, "ib_write_bw")}
    assert all(pair["gbps"] >= pair["floor_gbps"] for pair in pairs)


def test_a_skewed_clock_and_a_lost_link_are_caught_where_they_are_and_repaired(kernels: Lab) -> None:
    caught_and_repaired(kernels, SABOTAGES)
    ahead = float(kernels.ssh("gpu-1", "date", "+%s.%N")) - time.time()
    assert abs(ahead) < 2, "converge started chrony, which must have stepped the clock back"
