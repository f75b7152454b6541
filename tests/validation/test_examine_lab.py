"""The examination of real lab machines: over OpenSSH, in one wave, with what a broken one looks like."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from suite_shapes import SHAPES, fits

from policies.identity import identify
from policies.measurement import Outcome
from spec.deployment import Deployment
from spec.document import read
from spec.folders import state
from spec.load import load
from spec.plan import ClusterPlan, derive
from stacks.lab import lab
from validation.examine import examine
from validation.transport import Ssh, Unreachable

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts need root"),
]

ROOT = Path(__file__).parents[2]

NOT_YET = {"slurm.node_state", *(name for name in SHAPES if name.startswith("filesystem."))}
"""Fails on machines that no role has made anything of: neither the scheduler nor the filesystem is configured."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterPlan, Deployment]]:
    """A control node and two GPU nodes, started and not converged."""
    text = read(ROOT / "clusters" / "lab-containers.yaml").data
    text["nodes"] = [each for each in text["nodes"] if each["name"] in ("control", "gpu")]
    spec = tmp_path_factory.mktemp("spec") / "small.yaml"
    spec.write_text(yaml.safe_dump(text, sort_keys=False))
    stack = f"suite-{secrets.token_hex(3)}"
    argv = [sys.executable, "-m", "stacks.lab", "up", stack, "--spec", str(spec)]
    try:
        subprocess.run(argv, cwd=ROOT, check=True, timeout=800, stdout=subprocess.DEVNULL)
        deployment = Deployment.model_validate_json((state(stack) / "deployment.json").read_text())
        yield derive(load(spec)), deployment
    finally:
        asyncio.run(lab.down(stack))


def test_every_node_of_a_lab_is_examined_and_nothing_unexpected_is_raised(
    cluster: tuple[ClusterPlan, Deployment],
) -> None:
    plan, deployment = cluster
    found = examine(plan, deployment, deployment.nodes)
    assert list(found) == list(deployment.nodes)
    for name, examination in found.items():
        assert examination.complete, (name, examination.fault, examination.unreachable)
        assert {each.measure for each in examination.measurements} == SHAPES.keys()
        for each in examination.measurements:
            assert each.outcome is not Outcome.ERROR or each.measure in NOT_YET, (name, each.measure, each.reason)
            if each.outcome is Outcome.MEASURED:
                assert fits(each.value, SHAPES[each.measure]), (name, each.measure, each.value)
        hostname = examination.measured("machine.hostname")
        assert hostname
        assert hostname.value == name
    assert len({identify(found[name]).digest for name in deployment.nodes if name.startswith("control")}) == 1
    gpus = found["gpu-0"]
    assert gpus.identity["gpus"] is None, "GPUs that the spec expects and no driver shows are unknown, not absent"


def test_a_second_run_sends_nothing_again_and_tells_the_same_identity(cluster: tuple[ClusterPlan, Deployment]) -> None:
    plan, deployment = cluster
    first, second = (examine(plan, deployment, ["control-0"], only=["kernel.boot_id"])["control-0"] for _ in range(2))
    assert first.identity == second.identity
    assert first.measured("kernel.boot_id") == second.measured("kernel.boot_id").model_copy(  # type: ignore[union-attr]
        update={"took_s": first.measured("kernel.boot_id").took_s}  # type: ignore[union-attr]
    )


def test_a_rail_that_is_down_is_lost_to_its_peer(cluster: tuple[ClusterPlan, Deployment]) -> None:
    plan, deployment = cluster
    only = ["network.interfaces", "network.peers_lost"]
    found = examine(plan, deployment, ["gpu-0"], only=only)["gpu-0"]
    links, losses = found.measured("network.interfaces"), found.measured("network.peers_lost")
    assert links
    assert losses
    assert links.value["rail0"]["state"] == "down"  # type: ignore[index,call-overload]
    assert losses.value["rail-0/gpu-1"] == 100  # type: ignore[index,call-overload]
    assert losses.value["management/gpu-1"] == 0  # type: ignore[index,call-overload]


def test_a_command_that_fails_on_a_node_is_not_a_node_that_is_gone(cluster: tuple[ClusterPlan, Deployment]) -> None:
    _, deployment = cluster
    over = Ssh(deployment.ssh_config)
    for status in (0, 3, 255):
        assert asyncio.run(over.run("gpu-0", ["sh", "-c", f"exit {status}"])).status == min(status, 254)
    with pytest.raises(Unreachable):
        asyncio.run(over.run("gpu-7", ["true"], timeout=30))


def test_a_node_of_another_cluster_is_refused(cluster: tuple[ClusterPlan, Deployment]) -> None:
    plan, deployment = cluster
    with pytest.raises(LookupError, match="storage-7"):
        examine(plan, deployment, ["storage-7"])
