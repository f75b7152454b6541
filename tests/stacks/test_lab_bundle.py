"""The OCI configuration and the network of a machine, as data."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.plan import ClusterPlan
from stacks.lab import cgroups, lab, machines
from stacks.lab import network as links
from stacks.lab.bundle import Places, configuration
from stacks.lab.cgroups import Hierarchy, hierarchies, limits_memory
from stacks.lab.host import ENOUGH, allow_watches
from stacks.lab.links import bridge_lines, cable, cable_lines, port_lines
from stacks.lab.model import Machine, machine, namespace, network

PLACES = Places(root=Path("/disk"), vendor=Path("/vendor"))


def test_the_configuration_of_a_gpu_node_is_as_recorded(gpu_machine: Machine, snapshot) -> None:
    assert configuration(gpu_machine, PLACES) == snapshot


def test_a_machine_cannot_touch_its_hosts_clock_modules_power_or_limits(gpu_machine: Machine) -> None:
    capabilities = configuration(gpu_machine, PLACES)["process"]["capabilities"]
    for each in capabilities.values():
        assert not {"CAP_SYS_TIME", "CAP_SYS_MODULE", "CAP_SYS_BOOT", "CAP_SYS_RESOURCE", "CAP_SYS_RAWIO"} & set(each)
    read_only = configuration(gpu_machine, PLACES)["linux"]["readonlyPaths"]
    assert {"/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"} <= set(read_only)
    assert "/proc/sys/net" not in read_only


def test_no_namespace_but_the_users_is_shared_with_the_host(gpu_machine: Machine) -> None:
    found = {each["type"]: each.get("path") for each in configuration(gpu_machine, PLACES)["linux"]["namespaces"]}
    assert found.keys() == {"pid", "ipc", "uts", "mount", "cgroup", "network"}
    assert found["network"] == "/run/netns/muster-test.gpu-0"


def test_only_fuse_is_added_to_the_devices(gpu_machine: Machine) -> None:
    rules = configuration(gpu_machine, PLACES)["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert [(each["major"], each["minor"]) for each in rules[1:]] == [(10, 229)]


def test_the_vendor_repository_is_read_only_and_absent_where_there_is_none(gpu_machine: Machine) -> None:
    def binds(places: Places) -> list[dict]:
        return [each for each in configuration(gpu_machine, places)["mounts"] if each["type"] == "bind"]

    assert binds(PLACES) == [
        {"destination": "/srv/muster/vendor", "type": "bind", "source": "/vendor", "options": ["bind", "ro"]}
    ]
    assert binds(Places(root=Path("/disk"), vendor=None)) == []


def test_memory_is_limited_only_where_the_host_can(gpu_machine: Machine) -> None:
    limited = configuration(gpu_machine, PLACES)["linux"]["resources"]
    assert limited["memory"] == {"limit": gpu_machine.memory_mib * 1024**2}
    free = configuration(gpu_machine, PLACES.model_copy(update={"memory_limits": False}))["linux"]["resources"]
    assert "memory" not in free


def test_only_management_gets_an_address_from_the_lab(plan: ClusterPlan) -> None:
    for node in plan.nodes:
        made = machine("test", node, "0" * 16, None)
        assert [port.name for port in made.ports if port.address] == ["mgmt0"]
        macs = {port.name: port.mac for port in made.ports}
        assert len(set(macs.values())) == len(macs)
        assert {each.name: each.mac for each in node.interfaces if not each.links}.items() <= macs.items()
        lines = port_lines(made)
        assert f"address add {made.address} broadcast + dev mgmt0" in lines
        assert not any("rail" in line or "stor" in line for line in lines)


def test_there_is_a_bridge_for_each_subnet_with_its_mtu_and_a_fixed_mac(plan: ClusterPlan) -> None:
    made = network("test", plan)
    assert {each.plane: each.mtu for each in made.bridges} == {each.plane: each.mtu for each in plan.subnets}
    assert made == network("test", plan)
    lines = bridge_lines(made)
    assert sum("address add" in line for line in lines) == 1
    assert "address add 10.77.1.1/24 broadcast + dev management" in lines


def test_each_cable_joins_a_port_to_the_bridge_of_its_plane(gpu_machine: Machine) -> None:
    lines = cable_lines(gpu_machine)
    assert len(lines) == 2 * len(gpu_machine.ports)
    for port in gpu_machine.ports:
        end = cable("gpu-0", port.name)
        assert f"link set {end} alias gpu-0.{port.name} master {port.plane} up" in lines


@given(st.sets(st.tuples(st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True), st.integers(0, 15)), max_size=50))
def test_cables_have_names_of_their_own_that_the_kernel_takes(ends: set[tuple[str, int]]) -> None:
    names = [cable(node, f"rail{port}") for node, port in ends]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in names)


@given(st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True), st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True))
def test_no_stacks_namespace_is_another_stacks_machine(stack: str, node: str) -> None:
    assert namespace(stack, node) != namespace(f"{stack}-{node}")
    assert namespace(stack, node) != namespace(stack)


MIXED = """\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/systemd rw,relatime shared:10 - cgroup cgroup rw,name=systemd
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime shared:11 - cgroup2 cgroup2 rw
33 24 0:29 / /proc rw - proc proc rw
"""


def test_mixed_control_groups_are_told_apart() -> None:
    found = hierarchies(MIXED)
    assert [(str(each.mount), each.version) for each in found] == [
        ("/sys/fs/cgroup/memory", 1),
        ("/sys/fs/cgroup/systemd", 1),
        ("/sys/fs/cgroup/unified", 2),
    ]
    assert limits_memory(found)
    assert not limits_memory(found[1:])
    assert hierarchies("") == hierarchies("cut\noff - \n- cgroup") == ()


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy that is a plain folder."""
    monkeypatch.setattr(cgroups, "mounted", lambda: (Hierarchy(mount=tmp_path / "cgroup", version=2),))
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def test_machines_are_removed_also_where_nothing_but_their_control_group_tells_of_them(
    groups: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine has no namespace of its own, and its folder may have been removed by hand."""
    for name in ("muster-test.gpu-0", "muster-test-b.gpu-1", "other.gpu-2"):
        (groups / name).mkdir()
    removed: list[tuple[str, str]] = []

    async def none() -> frozenset[str]:
        return frozenset()

    async def remove(*what: str) -> None:
        removed.append(what)  # type: ignore[arg-type]

    monkeypatch.setattr(lab, "require_root", lambda: None)
    monkeypatch.setattr(links, "namespaces", none)
    monkeypatch.setattr(links, "remove", remove)
    monkeypatch.setattr(machines, "remove", remove)
    asyncio.run(lab.down("test"))
    assert removed == [("test", "gpu-0"), ("test",)]


def test_processes_that_do_not_end_are_told_with_their_group(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "LIMIT_S", 0.1)
    (groups / "muster-test.gpu-0/job").mkdir(parents=True)
    (groups / "muster-test.gpu-0/job/file").touch()
    with pytest.raises(TimeoutError, match=r"did not end .*muster-test\.gpu-0 .* run the same again"):
        asyncio.run(cgroups.clear("muster-test.gpu-0"))


def test_a_host_that_allows_too_few_watches_is_raised_and_one_that_allows_more_is_left(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    allow_watches(limit)
    assert int(limit.read_text()) == ENOUGH
    limit.write_text(f"{2 * ENOUGH}\n")
    allow_watches(limit)
    assert int(limit.read_text()) == 2 * ENOUGH
