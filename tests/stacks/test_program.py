"""The Pulumi program against mocks: what it declares, in which order, and what it refuses."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks, settings
from pulumi.runtime.stack import wait_for_rpcs

from policies import design
from policies.pins import load_pins
from spec.deployment import CertificateClass, Deployment
from spec.load import load
from spec.plan import ClusterPlan
from stacks.program import program

ROOT = Path(__file__).parents[2]
WAIVER = """\
pins: lab
waivers:
  - id: colour
    control: gpu.colour
    reason: a reason of some length
    approved_by: A. Person
    expires: 2026-12-24T12:00:00Z
"""


class Recorded(mocks.Mocks):
    """Every resource with its inputs; a machine's start is `boot-NAME`."""

    def __init__(self) -> None:
        self.resources: dict[str, mocks.MockResourceArgs] = {}
        self.order: list[str] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.resources[args.name] = args
        self.order.append(args.name)
        more = {"boot": f"boot-{args.name}"} if args.typ == "muster:lab:Machine" else {}
        return f"id-{args.name}", {**args.inputs, **more}

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:  # noqa: ARG002
        return {}


@pytest.fixture
def recorded(state_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    from images import node, vendor

    monkeypatch.setattr(node, "digest", lambda: "a" * 64)
    monkeypatch.setattr(vendor, "digest", lambda: "b" * 64)
    recorded = Recorded()
    # Pulumi's mocks want the thread's event loop, which `asyncio.run` in any earlier test has taken away.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(recorded, project="muster", stack="lab", preview=False)
    yield recorded
    settings.reset_options()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    asyncio.set_event_loop(None)
    loop.close()


def declare(spec: Path | None = None) -> dict[str, Any]:
    """Runs the program and gives what it exports."""
    pulumi.runtime.set_all_config({"muster:spec": str(spec)} if spec else {})
    found: dict[str, Any] = {}

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi, "export", found.__setitem__)
            program()
        await wait_for_rpcs()
        if pending := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(pending, timeout=60)
        for name, output in found.items():
            found[name] = await output.future()

    asyncio.get_event_loop_policy().get_event_loop().run_until_complete(run())
    return found


def test_there_is_a_machine_for_each_node_with_what_the_plan_says(recorded: Recorded, plan: ClusterPlan) -> None:
    declare()
    machines = {name: each for name, each in recorded.resources.items() if each.typ == "muster:lab:Machine"}
    assert machines.keys() == {node.name for node in plan.nodes}
    for node in plan.nodes:
        inputs = machines[node.name].inputs
        assert (inputs["kind"], inputs["vendor"]) == (node.machine.value, "b" * 64)
        assert [port["name"] for port in inputs["ports"]] == [
            name for each in node.interfaces for name in each.links or (each.name,)
        ]


def test_virtual_machines_stand_on_an_image_of_their_own_that_is_made_before_them(recorded: Recorded) -> None:
    declare(ROOT / "clusters/lab.yaml")
    images = {name: each.inputs["image"] for name, each in recorded.resources.items() if "image" in each.inputs}
    assert images["control-0"] == "a" * 64
    assert images["gpu-0"] == recorded.resources["images"].inputs["vm"]
    assert images["gpu-0"].startswith("a" * 64 + "-")
    assert recorded.resources["gpu-0"].inputs["kind"] == "vm"
    assert recorded.order.index("images") < recorded.order.index("gpu-0")


def test_machines_come_after_images_and_network_and_converge_after_all_machines(
    recorded: Recorded, plan: ClusterPlan
) -> None:
    declare()
    machines = [node.name for node in plan.nodes]
    first = min(recorded.order.index(name) for name in machines)
    assert {"images", "network"} <= set(recorded.order[:first])
    assert recorded.order[-1] == "converge"
    assert recorded.resources["converge"].inputs["boots"] == {name: f"boot-{name}" for name in machines}


def test_the_output_is_a_deployment_of_this_spec(recorded: Recorded, plan: ClusterPlan) -> None:
    found = Deployment.model_validate(declare()["cluster"])
    assert found.stack == "lab"
    assert found.spec_digest == plan.digest
    assert found.certificate_class is CertificateClass.LAB
    assert found.nodes == tuple(node.name for node in plan.nodes)
    assert any("simulated" in each for each in found.simulated)


@pytest.mark.parametrize("name", ["lab", "lab-containers"])
def test_the_deployment_names_the_image_that_each_machine_is_made_from(recorded: Recorded, name: str) -> None:
    """A machine's own image: the part of its digest that covers every recipe that went into it."""
    images = declare(ROOT / f"clusters/{name}.yaml")["cluster"]["images"]
    machines = {name: each for name, each in recorded.resources.items() if each.typ == "muster:lab:Machine"}
    assert images.keys() == machines.keys()
    for node, machine in machines.items():
        assert machine.inputs["image"].split("-")[-1] == images[node]
        assert (images[node] == "a" * 64) is (machine.inputs["kind"] == "container")


def test_converge_depends_on_the_roles_and_on_the_plan(recorded: Recorded, tmp_path: Path) -> None:
    declare()
    before = recorded.resources["converge"].inputs["inputs"]
    changed = tmp_path / "changed.yaml"
    changed.write_text((ROOT / "clusters/lab-containers.yaml").read_text().replace("queue: train", "queue: other"))
    declare(changed)
    assert recorded.resources["converge"].inputs["inputs"] != before


def test_no_input_of_any_resource_is_a_secrets_value(recorded: Recorded) -> None:
    declare()
    for each in recorded.resources.values():
        assert "PRIVATE KEY" not in str(each.inputs)
        assert "passphrase" not in str(each.inputs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("substrate: lab", "substrate: static"), "substrate static cannot be deployed yet"),
        (("machine: container", "machine: host\n    kw: 1"), "the lab makes containers and virtual machines"),
    ],
)
def test_what_the_lab_cannot_make_is_refused_before_anything_is_declared(
    recorded: Recorded, tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((ROOT / "clusters/lab-containers.yaml").read_text().replace(*change, 1))
    load(other)
    with pytest.raises(pulumi.RunError, match=told):
        declare(other)
    assert recorded.resources == {}


def test_a_design_whose_proofs_fail_is_refused_with_each_of_them(recorded: Recorded, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((ROOT / "clusters/lab-containers.yaml").read_text().replace("monitors: 3", "monitors: 2"))
    with pytest.raises(pulumi.RunError, match="the design does not hold"):
        declare(other)
    assert recorded.resources == {}


@pytest.mark.parametrize(
    ("pinned", "told"),
    [
        ({"driver": "570.172.08", "fabric_manager": "570.172.08"}, r"pins\.cuda\.13\.driver: .*driver 570\.172\.08"),
        ({"fabric_manager": "580.82.07"}, r"pins\.fabric_manager\.driver: .*580\.82\.07"),
        ({"cuda": ""}, r"cuda is not pinned"),
    ],
    ids=["too old", "not the same", "unknown"],
)
def test_pins_that_do_not_work_together_are_refused_before_anything_is_declared(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, pinned: dict[str, str], told: str
) -> None:
    shipped = load_pins("lab")
    components = {name: each for name, each in {**shipped.components, **pinned}.items() if each != ""}
    monkeypatch.setattr(design, "load_pins", lambda _: shipped.model_copy(update={"components": components}))
    with pytest.raises(pulumi.RunError, match=r"the design does not hold") as refused:
        declare()
    assert re.search(told, str(refused.value))
    assert recorded.resources == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("pins: lab", "pins: nothing"), "no pin set 'nothing'"),
        (("pins: lab", WAIVER), "no control 'gpu.colour'"),
    ],
)
def test_pins_and_waivers_that_do_not_exist_are_refused_before_anything_is_declared(
    recorded: Recorded, tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((ROOT / "clusters/lab-containers.yaml").read_text().replace(*change, 1))
    with pytest.raises(pulumi.RunError, match=told):
        declare(other)
    assert recorded.resources == {}


def test_a_missing_spec_says_where_it_was_looked_for(recorded: Recorded, tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match=r"no spec for stack lab .*nowhere\.yaml"):
        declare(tmp_path / "nowhere.yaml")
