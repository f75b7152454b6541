"""What roles write on the nodes of every plan."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plan_inventories import OWN, ROLES, clustered, evaluate, hosts, render, variables

HOSTS = list(hosts())
BOND = {
    "plane": "storage", "name": "stor0", "address": "10.1.2.11/24", "mac": "02:00:00:00:00:01", "mtu": 9000,
    "vlan": 20, "links": ["stor0p0", "stor0p1"], "bond": "802.3ad", "rdma": False,
}  # fmt: skip


def ruleset(cluster: str, host: str, **override: Any) -> str:
    return render(ROLES / "firewall" / "templates" / "nftables.conf.j2", variables(cluster, host, **override))


def accepted_by_nft(text: str) -> str:
    """What the kernel lists after loading a ruleset in a network namespace of its own."""
    command = "nft --file - && nft --stateless list table inet muster"
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec", command],
        input=text, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize(("cluster", "host"), HOSTS)
def test_every_template_renders_with_no_hole_in_it(cluster: str, host: str) -> None:
    known = variables(cluster, host)
    interfaces = [known["muster_interfaces"][0], BOND]
    files = {
        f"{each['template']}.{each['kind']}.j2": each
        for each in evaluate(
            "interfaces | network_files({'rail0': '02:00:00:00:00:01'})", known | {"interfaces": interfaces}
        )
    }
    for role in OWN:
        for template in sorted((ROLES / role / "templates").iterdir()):
            lossless = {"rdma_lossless": {"dscp": 26, "priority": 3}} if "lossless" in template.name else {}
            found = {"network_found": {"stdout": "[]"}}
            text = render(template, {**known, **lossless, **found, "item": files.get(template.name)})
            assert "None" not in text, template
            assert "Ansible managed" in text, template
            assert text.endswith("\n"), template
            assert "{{" not in text, template


@pytest.mark.parametrize(("cluster", "host"), HOSTS)
def test_the_kernel_takes_the_rules_and_drops_what_no_rule_lets_in(cluster: str, host: str) -> None:
    listed = accepted_by_nft(ruleset(cluster, host))
    assert re.search(r"hook input priority filter; policy drop;", listed)
    assert re.search(r"hook forward priority filter; policy drop;", listed)
    for rule in clustered(cluster)["all"]["hosts"][host]["muster_firewall"]:
        assert f'comment "{rule["purpose"]}"' in listed


def test_loading_the_rules_again_changes_nothing_and_leaves_tables_of_others() -> None:
    text = ruleset("lab", "gpu-0")
    twice = accepted_by_nft(f"table inet other {{ chain pods {{ }}\n }}\n{text}\n{text}\nlist table inet other\n")
    assert twice.endswith(accepted_by_nft(text))


def test_sources_that_overlap_are_one_rule() -> None:
    rule = {
        "purpose": "administration", "protocol": "tcp", "ports": ["22", "20-30"], "interface": "mgmt0",
        "sources": ["10.0.0.0/8", "10.77.1.0/24"],
    }  # fmt: skip
    assert "10.0.0.0/8" in accepted_by_nft(ruleset("lab", "gpu-0", firewall_rules=[rule]))


def test_nodes_of_kubernetes_forward() -> None:
    pool = {**clustered("lab")["all"]["vars"]["muster_pool"], "scheduler": "kubernetes"}
    assert "hook forward priority filter; policy accept;" in ruleset("lab", "gpu-0", muster_pool=pool)


def test_one_node_serves_time_to_management_and_all_others_follow_it() -> None:
    template = ROLES / "chrony" / "templates" / "chrony.conf.j2"
    every = clustered("lab")["all"]
    server = every["vars"]["muster_time_server"]
    for host in every["hosts"]:
        lines = render(template, variables("lab", host)).splitlines()
        followed = [line.split()[1] for line in lines if line.startswith("server ")]
        if host == server:
            assert (followed, "local stratum 10" in lines, "port 0" in lines) == ([], True, False)
            assert [line for line in lines if line.startswith("allow")] == ["allow 10.77.1.0/24"]
        else:
            assert followed == [every["vars"]["muster_hosts"][server]["management"]]
            assert "port 0" in lines
            assert not [line for line in lines if line.startswith(("allow", "local"))]
        assert "cmdport 0" in lines


def test_a_server_with_sources_does_not_pretend_to_be_one() -> None:
    text = render(
        ROLES / "chrony" / "templates" / "chrony.conf.j2", variables("lab", "control-0", chrony_sources=["a.b"])
    )
    assert "server a.b iburst" in text
    assert "local" not in text


@pytest.mark.parametrize(("able", "option"), [(["clock"], False), ([], True)])
def test_a_clock_that_may_not_be_set_is_still_measured(able: list[str], option: bool) -> None:
    known = variables("lab", "gpu-0", chrony_capabilities=able)
    options = render(ROLES / "chrony" / "templates" / "default.j2", known)
    unit = render(ROLES / "chrony" / "templates" / "chrony.service.conf.j2", known)
    assert ('-x"' in options.splitlines()[-1]) is option
    assert ("ConditionCapability=\n" in unit) is option


def test_no_limit_on_the_stack_is_ever_set() -> None:
    for name in ("limits.conf.j2", "system.conf.j2"):
        text = render(ROLES / "base" / "templates" / name, variables("h100-roce-1024", "gpu-0"))
        settings = [line for line in text.splitlines() if not line.startswith("#")]
        assert not [line for line in settings if "stack" in line.lower()]
        assert "1048576" in text


def test_ports_of_jobs_are_the_ephemeral_range_of_compute_nodes_alone() -> None:
    jobs = clustered("lab")["all"]["vars"]["muster_fabric"]["job_ports"].replace("-", " ")
    assert evaluate("base_sysctl['net.ipv4.ip_local_port_range']", variables("lab", "gpu-0")) == jobs
    assert "net.ipv4.ip_local_port_range" not in evaluate("base_sysctl", variables("lab", "control-0"))


def test_settings_of_the_kernel_are_left_alone_where_it_is_the_hosts() -> None:
    lab = evaluate("base_sysctl | list", variables("lab-containers", "gpu-0"))
    real = evaluate("base_sysctl | list", variables("h100-roce-1024", "gpu-0"))
    assert [name for name in lab if not name.startswith("net.")] == []
    assert "vm.zone_reclaim_mode" in real
    assert "net.ipv4.ip_forward" not in real


def test_the_lossless_class_of_real_ports_is_the_specs() -> None:
    known = variables("h100-roce-1024", "gpu-0")
    declared = clustered("h100-roce-1024")["all"]["vars"]["muster_lossless"]
    unit = render(ROLES / "rdma" / "templates" / "muster-lossless@.service.j2", known)
    assert f"prio-pfc all:off {declared['priority']}:on" in unit
    assert f"dscp-prio {declared['dscp']}:{declared['priority']}" in unit
    assert evaluate("rdma_pauses", known) == [bool(each) for each in declared["pfc"]]


@pytest.mark.parametrize(("vlan", "below"), [(64, "p0"), (None, "")])
def test_rdma_on_real_hosts_is_the_ports_whether_or_not_a_vlan_is_above_it(vlan: int | None, below: str) -> None:
    """`rdma link` names the port, and `dcb` knows no VLAN: with the VLAN's name the role could never succeed."""
    interfaces = clustered("h100-roce-1024")["all"]["hosts"]["gpu-0"]["muster_interfaces"]
    given = [each | {"vlan": vlan} if each["rdma"] else each for each in interfaces]
    links = evaluate("rdma_links", variables("h100-roce-1024", "gpu-0", muster_interfaces=given))
    assert links == [f"rail{rail}{below}" for rail in range(8)]


def test_soft_roce_is_made_on_the_interface_that_has_the_address() -> None:
    assert evaluate("rdma_links", variables("lab", "gpu-0")) == ["rail0", "rail1"]


def test_the_vendors_key_is_inside_the_source_and_blank_lines_survive() -> None:
    text = render(ROLES / "gpu" / "templates" / "muster-gpu.sources.j2", variables("lab", "gpu-0"))
    key = text[text.index("Signed-By:") :].splitlines()[1:]
    assert all(line.startswith(" ") for line in key)
    assert " ." in key


@pytest.mark.parametrize(("cluster", "host"), [each for each in HOSTS if each[0] != "h100-roce-1024"])
def test_names_of_all_planes_are_in_hosts(cluster: str, host: str) -> None:
    lines = render(ROLES / "base" / "templates" / "hosts.j2", variables(cluster, host)).splitlines()
    names = [name for line in lines if line and line[0].isdigit() for name in line.split()[1:]]
    assert len(names) == len(set(names))
    for node, planes in clustered(cluster)["all"]["vars"]["muster_hosts"].items():
        assert {
            node if plane == "management" else f"{node}-{plane.replace('rail-', 'rail')}" for plane in planes
        } <= set(names)


def test_files_of_a_tagged_bond_name_its_ports_its_bond_and_its_vlan() -> None:
    management = clustered("lab")["all"]["hosts"]["gpu-0"]["muster_interfaces"][0]
    known = variables("lab", "gpu-0", network_interfaces=[management, BOND], network_capabilities=["kernel"])
    names = {Path(path).name.removeprefix("05-muster-") for path in evaluate("network_files_wanted", known)}
    assert names == {
        "mgmt0.link", "mgmt0.network", "stor0.network", "stor0.netdev", "bond-stor0.netdev", "bond-stor0.network",
        "stor0p0.network", "stor0p1.network",
    }  # fmt: skip


def test_the_way_in_keeps_what_it_has() -> None:
    template = ROLES / "network" / "templates" / "address.network.j2"
    for interface in clustered("lab")["all"]["hosts"]["gpu-0"]["muster_interfaces"]:
        name, (local, length) = interface["name"], interface["address"].split("/")
        there = {"family": "inet", "local": local, "prefixlen": int(length), "scope": "global", "label": name}
        found = {"stdout": json.dumps([{"ifname": name, "addr_info": [there]}])}
        text = render(template, variables("lab", "gpu-0", item={"interface": interface}, network_found=found))
        assert text.endswith(f"[Address]\nAddress={interface['address']}\nBroadcast=no\n")
        assert ("KeepConfiguration=yes" in text) is (interface["plane"] == "management")
