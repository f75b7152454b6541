"""A virtual machine's command line, cables and identity, as data."""

import configparser
from pathlib import Path

import pytest

from spec.load import load
from spec.plan import ClusterPlan, derive
from stacks.lab import lab
from stacks.lab.accelerator import Accelerator
from stacks.lab.links import cable, cable_lines
from stacks.lab.model import Machine, machine
from stacks.lab.qemu import Places, command, enabled, files

ROOT = Path(__file__).parents[2]
PLACES = Places(where=Path("/m"), kernel=Path("/i/vmlinuz"), initrd=Path("/i/initrd"), vendor=Path("/vendor"))


@pytest.fixture(scope="module")
def mixed() -> ClusterPlan:
    """The plan of the lab whose GPU nodes are virtual machines."""
    return derive(load(ROOT / "clusters" / "lab.yaml"))


@pytest.fixture
def emulated(mixed: ClusterPlan) -> Machine:
    """One of its GPU nodes."""
    return machine("test", mixed.node("gpu-0"), f"{'0' * 16}-{'1' * 16}", "2" * 16)


def parsed(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text)
    return unit


def test_the_command_line_is_as_recorded(emulated: Machine, snapshot) -> None:
    assert command(emulated, PLACES, Accelerator.TCG) == snapshot


def test_kvm_runs_on_the_hosts_processor_and_nothing_else_differs(emulated: Machine) -> None:
    fast, slow = (command(emulated, PLACES, each) for each in (Accelerator.KVM, Accelerator.TCG))
    differ = [(a, b) for a, b in zip(fast, slow, strict=True) if a != b]
    assert differ == [("kvm", "tcg,thread=multi"), ("host", "max")]


def test_processors_and_memory_are_the_node_groups(emulated: Machine, mixed: ClusterPlan) -> None:
    told = command(emulated, PLACES, Accelerator.TCG)
    assert told[told.index("-smp") + 1] == str(mixed.node("gpu-0").cpus)
    assert told[told.index("-m") + 1] == str(int(mixed.node("gpu-0").memory_gib * 1024))


def test_a_comma_in_a_path_is_part_of_the_path(emulated: Machine) -> None:
    told = command(emulated, PLACES.model_copy(update={"where": Path("/a,b")}), Accelerator.TCG)
    drives = [told[at + 1] for at, word in enumerate(told) if word == "-drive"]
    assert all(drive.startswith("file=/a,,b/") for drive in drives)


def test_nothing_of_a_vendor_is_named_where_there_is_none(emulated: Machine) -> None:
    told = command(emulated, PLACES.model_copy(update={"vendor": None}), Accelerator.TCG)
    assert "-virtfs" not in told
    bare = emulated.model_copy(update={"vendor": None})
    assert not any("vendor" in path for path in files(bare))
    assert "srv-muster-vendor.mount" not in enabled(bare)


def test_each_link_of_a_bond_is_a_tap_on_its_planes_bridge(emulated: Machine, mixed: ClusterPlan) -> None:
    bond = mixed.node("gpu-0").interface("storage")
    assert bond
    assert bond.links == ("stor0p0", "stor0p1")
    assert {port.name: port.plane for port in emulated.ports} == {
        "mgmt0": "management",
        "stor0p0": "storage",
        "stor0p1": "storage",
        "rail0": "rail-0",
        "rail1": "rail-1",
    }
    lines = cable_lines(emulated)
    for port in emulated.ports:
        end = cable("gpu-0", port.name)
        assert f"tuntap add dev {end} mode tap" in lines
        assert f"link set {end} mtu {port.mtu}" in lines
        assert f"link set {end} alias gpu-0.{port.name} master {port.plane} up" in lines
    assert len(lines) == 3 * len(emulated.ports)


def test_every_port_has_a_hardware_address_of_its_own_that_gives_it_its_name(mixed: ClusterPlan) -> None:
    made = [machine("test", node, "0" * 16, None) for node in mixed.nodes]
    macs = [port.mac for each in made for port in each.ports]
    assert len(set(macs)) == len(macs)
    for each in made:
        for port in each.ports:
            link = parsed(files(each)[f"etc/systemd/network/10-lab-{port.name}.link"])
            assert (link["Match"]["PermanentMACAddress"], link["Link"]["Name"]) == (port.mac, port.name)


def test_only_management_gets_an_address_from_the_lab(emulated: Machine) -> None:
    networks = {path: parsed(text) for path, text in files(emulated).items() if path.endswith(".network")}
    (path,) = networks
    assert networks[path]["Match"]["Name"] == "mgmt0"
    assert networks[path]["Network"]["Address"] == str(emulated.address)


def test_containers_on_the_same_bridges_have_the_same_packet_sizes_and_no_rails(mixed: ClusterPlan) -> None:
    for node in mixed.nodes:
        for port in machine("test", node, "0" * 16, None).ports:
            assert port.mtu == mixed.subnet(port.plane).mtu
        rails = [each for each in node.interfaces if each.plane.startswith("rail-")]
        assert len(rails) == (2 if node.gpus else 0)
        assert all(each.rdma for each in rails)


def test_the_deployment_says_that_machines_are_virtual_and_rdma_is_software(mixed: ClusterPlan) -> None:
    said = lab.deployment("vm", ROOT / "clusters/lab.yaml", mixed, {}).simulated
    assert any("virtual" in each and "emulated" in each for each in said)
    assert any("Soft-RoCE" in each for each in said)
    assert not any("TCP" in each for each in said)
