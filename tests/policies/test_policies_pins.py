"""Pins: complete versions, that agree with each other, locked by a digest."""

import json
from pathlib import Path
from typing import Any

import pytest
from sample_nodes import CONTAINERS, HARDWARE

from images.node import digest as image_digest
from images.node import packages as image_packages
from images.node import root as image_root
from images.vendor import recipe as vendor_recipe
from policies.compatibility import Compatible, check
from policies.pins import PINS, PinSet, expectations_of, load_pins
from policies.reading import PolicyError
from spec.load import load
from spec.schema import Role

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in PINS.glob("*.yaml"))

SET: dict[str, Any] = {
    "name": "test",
    "description": "a set for tests",
    "sources": ["here"],
    "components": {"driver": "580.95.05", "nccl": "2.28.9"},
    "packages": {"all": {"chrony": "4.3-2"}, "compute": {"libnccl2": "2.28.9-1+cuda13.0"}},
}


def changed(**parts: Any) -> PinSet:
    return PinSet.model_validate(SET | parts)


@pytest.mark.parametrize("name", NAMES)
def test_every_pin_set_is_compatible_with_itself(name: str) -> None:
    told = check(load_pins(name).components)
    assert [str(each) for each in told if each.state in (Compatible.BROKEN, Compatible.UNKNOWN)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_cluster_names_pins_that_exist(path: Path) -> None:
    assert load_pins(load(path).pins).name == load(path).pins


def test_a_name_without_a_file_is_told_with_those_there_are() -> None:
    with pytest.raises(PolicyError, match="hopper-2026-11, lab"):
        load_pins("labb")
    with pytest.raises(PolicyError):
        load_pins("../pins/lab")


def test_a_node_has_the_packages_of_all_and_of_each_of_its_roles() -> None:
    pins = load_pins("lab")
    control, gpu = CONTAINERS.node("control-0"), CONTAINERS.node("gpu-0")
    assert pins.packages_of(control).keys() >= {"chrony", "slurmctld", "ceph-mon"}
    assert pins.packages_of(gpu).keys() >= {"chrony", "slurmd", "libnccl2"}
    assert "slurmctld" not in pins.packages_of(gpu)


def test_expectations_carry_the_pins_and_gpu_versions_only_where_there_are_gpus() -> None:
    pins = load_pins("lab")
    gpu = expectations_of(CONTAINERS, CONTAINERS.node("gpu-0"), pins)
    control = expectations_of(CONTAINERS, CONTAINERS.node("control-0"), pins)
    assert gpu["pins.driver"] == "580.95.05"
    assert gpu["pins.held"] == sorted(gpu["pins.packages"])  # type: ignore[arg-type]
    assert "pins.driver" not in control
    assert "pins.kernel" not in gpu
    json.dumps(gpu, allow_nan=False)


def test_the_digest_follows_versions_and_not_words() -> None:
    assert changed().digest == changed(description="the same in other words", sources=["there"]).digest
    assert changed().digest != changed(components={"driver": "580.82.07", "nccl": "2.28.9"}).digest
    packages = {**SET["packages"], "all": {"chrony": "4.3-3"}}
    assert changed().digest != changed(packages=packages).digest


def test_ansible_reads_packages_by_role() -> None:
    variables = changed().variables()
    assert variables["muster_pins"]["packages"]["compute"] == {"libnccl2": "2.28.9-1+cuda13.0"}
    json.dumps(variables)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"packages": {}}, "pins no package"),
        ({"packages": {"all": {"chrony": ""}}}, "chrony"),
        ({"packages": {"all": {"chrony": "latest"}}}, "chrony"),
        ({"packages": {"all": {"chrony": 4.3}}}, "chrony"),
        ({"packages": {"all": {"chrony": "4.3-*"}}}, "chrony"),
        ({"packages": {"gpu": {"chrony": "4.3-2"}}}, "gpu"),
        ({"packages": {"all": {"chrony": "4.3-2"}, "compute": {"chrony": "4.3-3"}}}, "choose one"),
        ({"packages": {"compute": {"libnccl2": "2.27.7-1+cuda12.9"}}}, "but nccl at 2.28.9"),
        ({"packages": {"compute": {"libnccl2": "2.28.90-1"}}}, "but nccl at 2.28.9"),
        ({"components": {"cuda": 13.0}}, "cuda"),
        ({"components": {"cudda": "13.0"}}, "cudda"),
        ({"sources": []}, "sources"),
    ],
    ids=str,
)
def test_pins_that_leave_something_open_or_contradict_themselves_are_refused(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        changed(**parts)


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    text = (PINS / "lab.yaml").read_text().replace('cuda: "13.0"', "cuda: 13.0", 1)
    (tmp_path / "lab.yaml").write_text(text)
    with pytest.raises(PolicyError, match=r"lab\.yaml:\d+: components\.cuda: "):
        load_pins("lab", tmp_path)


def test_an_image_that_moved_past_its_pins_is_told_package_by_package() -> None:
    pins = changed()
    installed = {"chrony": "4.3-2", "libnccl2": "2.27.7-1+cuda12.9"}
    assert pins.differing(installed) == {"libnccl2": "2.27.7-1+cuda12.9, pinned at 2.28.9-1+cuda13.0"}
    assert pins.differing({}).keys() == {"chrony", "libnccl2"}


def test_the_labs_gpu_packages_are_those_of_its_vendor_repository() -> None:
    offered = {(package.name, package.version) for package in vendor_recipe()}
    names = {name for name, _ in offered}
    pinned = {(name, version) for name, version in load_pins("lab").packages[Role.COMPUTE].items() if name in names}
    assert pinned
    assert pinned <= offered


def test_the_labs_other_packages_are_those_of_its_node_image() -> None:
    if not image_root(image_digest()).is_dir():
        pytest.skip("the node image is not built yet; make up builds it")
    offered = image_packages(image_digest()) | {package.name: "" for package in vendor_recipe()}
    assert {name: why for name, why in load_pins("lab").differing(offered).items() if offered.get(name) != ""} == {}


def test_every_role_is_a_role_of_the_plan() -> None:
    assert set(load_pins("lab").packages) - {"all"} <= set(Role)
    assert {role for node in HARDWARE.nodes for role in node.roles} == set(Role)
