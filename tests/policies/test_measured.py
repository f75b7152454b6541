"""Which run's curve stands for a network: NCCL's own, of this network, the newest; all others are told why not."""

from datetime import timedelta
from pathlib import Path

import pytest
from sample_runs import NOW, PLAN, cluster, fabric, replan, run, sweep

from policies import evidence
from policies.fabric import FabricResult, Sweep, SweepPoint
from policies.measured import curves, measured
from policies.verdict import State
from spec.plan import derive
from spec.schema import Role

NODES = tuple(node.name for node in PLAN.with_role(Role.COMPUTE))


def nccl(nodes: tuple[str, ...] = NODES, **changed: object) -> Sweep:
    return sweep(nodes, **{"backend": "nccl", **changed})


def of(*sweeps: Sweep) -> FabricResult:
    return fabric(sweeps=sweeps, state=State.FAIL)


def keep(reports: Path, found: FabricResult | None, hours: int = 0, stack: str = "lab") -> Path:
    started = NOW - timedelta(hours=hours)
    made = run().model_copy(update={"fabric": found, "started": started, "id": evidence.run_id(started)})
    return evidence.save(made, reports / stack, NOW)


def test_the_newest_run_of_this_network_counts(tmp_path: Path) -> None:
    keep(tmp_path, of(nccl(plateau=0.2)), hours=5, stack="other-stack")
    newest = keep(tmp_path, of(nccl(), sweep(NODES)), hours=1)
    found = measured(tmp_path, PLAN)
    assert found.between
    assert found.in_node is None
    assert [each.bytes for each in found.between.points] == [each.bytes for each in nccl().points]
    assert str(newest) in found.source
    assert found.passed_over == ()


def test_a_curve_slower_than_its_floor_is_a_measurement_too(tmp_path: Path) -> None:
    keep(tmp_path, of(nccl(floor=100.0)))
    assert measured(tmp_path, PLAN).between


def test_one_node_is_the_curve_within_a_node() -> None:
    found = curves((nccl(NODES[:1]), nccl()), "here")
    assert found.in_node
    assert found.between
    assert "on 1 nodes" not in found.source


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"backend": "gloo"}, "not on NCCL"),
        ({"op": "all_gather"}, "not the all-reduce"),
        ({"rail": 0}, "not the all-reduce"),
        ({"reason": "rank 3 did not finish"}, "rank 3 did not finish"),
        ({"plateau": None}, "not measured"),
        ({"points": (SweepPoint(bytes=1024, algbw=1, busbw=0, wrong=0, repeats=3),)}, "not measured"),
        ({"points": (SweepPoint(bytes=1024, algbw=1, busbw=1, wrong=1, repeats=3),)}, "were wrong"),
        ({"points": (SweepPoint(bytes=1024, algbw=1, busbw=1, wrong=0, repeats=2),)}, "not repeated"),
    ],
)
def test_what_cannot_be_used_is_told_and_an_older_run_taken(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    older = keep(tmp_path, of(nccl()), hours=1)
    keep(tmp_path, of(nccl(**changed)))
    found = measured(tmp_path, PLAN)
    assert str(older) in found.source
    (passed,) = found.passed_over
    assert why in passed


def test_runs_without_a_fabric_and_files_that_are_no_runs_are_told(tmp_path: Path) -> None:
    keep(tmp_path, None)
    broken = keep(tmp_path, of(nccl()), hours=1)
    (broken / "run.json").write_text('{"version": "muster/run/v9"}')
    found = measured(tmp_path, PLAN)
    assert found.between is None
    assert ["no collective was run" in each or "no run of this version" in each for each in found.passed_over] == [
        True, True,
    ]  # fmt: skip


def test_the_measurement_of_another_network_does_not_count(tmp_path: Path) -> None:
    keep(tmp_path, of(nccl()))
    spec = PLAN.spec
    faster = spec.networks.fabric.model_copy(update={"link_gbps": spec.networks.fabric.link_gbps * 2})
    other = replan(PLAN, spec=spec.model_copy(update={"networks": spec.networks.model_copy(update={"fabric": faster})}))
    assert measured(tmp_path, other) == measured(tmp_path / "nothing", PLAN)
    assert measured(tmp_path, derive(cluster().model_copy(update={"name": "other"}))).between is None
