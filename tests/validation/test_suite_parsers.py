"""Each parser of the node suite on what the real tools printed."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from validation.node import (
    clock,
    filesystem,
    firewall,
    kernel,
    machine,
    network,
    packages,
    ports,
    rdma,
    scheduler,
    services,
    users,
)
from validation.node.host import Host
from validation.node.identity import macs
from validation.node.measure import Unmeasurable

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


class Answers(Host):
    """A host whose commands print what was recorded."""

    def __init__(self, answers: dict[str, str], expectations: dict[str, Any] | None = None) -> None:
        super().__init__("gpu-0", expectations)
        self.answers = answers

    def run(self, *argv: str) -> str:
        return recorded(next(name for part, name in self.answers.items() if part in argv))


def test_a_clock_that_follows_a_server() -> None:
    host = Answers({"tracking": "chronyc_tracking.txt", "sources": "chronyc_sources.txt"})
    assert clock.synchronised(host) is True
    assert clock.offset_ms(host) == 0.00218
    assert clock.source(host) == "10.77.1.11"
    assert clock.stratum(host) == 11


def test_a_clock_that_follows_nothing_has_no_offset_rather_than_none() -> None:
    host = Answers({"tracking": "chronyc_tracking_unsynchronised.txt", "sources": "chronyc_sources_unreached.txt"})
    assert clock.synchronised(host) is False
    for fact in (clock.offset_ms, clock.source, clock.stratum):
        with pytest.raises(Unmeasurable):
            fact(host)
    with pytest.raises(Unmeasurable):
        clock.selected(recorded("chronyc_sources_unreached.txt"))


def test_the_time_server_follows_itself() -> None:
    host = Answers({"tracking": "chronyc_tracking_local.txt"})
    assert clock.source(host) == "local"
    assert clock.synchronised(host) is True


@pytest.mark.parametrize("told", ["", "506 Cannot talk to daemon", "1,2,3", "a," * 20])
def test_what_chrony_never_prints_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match="fields instead of 14"):
        clock.read_tracking(told)


MONITORS = {"filesystem.monitors": 3}


def test_a_healthy_filesystem() -> None:
    host = Answers({"status": "ceph_status_healthy.json"}, MONITORS)
    assert (filesystem.health(host), filesystem.health_checks(host)) == ("HEALTH_OK", [])
    counts = [fact(host) for fact in (filesystem.quorum, filesystem.metadata_active, filesystem.metadata_standby)]
    assert counts == [3, 1, 1]
    assert filesystem.osds_down(host) == 0


def test_a_filesystem_that_lost_its_standby() -> None:
    host = Answers({"status": "ceph_status_without_standby.json"}, MONITORS)
    assert filesystem.health_checks(host) == ["MDS_INSUFFICIENT_STANDBY"]
    assert (filesystem.metadata_active(host), filesystem.metadata_standby(host)) == (1, 0)


def test_a_node_that_is_no_storage_node_does_not_ask_the_monitors() -> None:
    with pytest.raises(Unmeasurable):
        filesystem.health(Answers({}))


def test_a_folder_of_the_nodes_own_disk_is_no_parallel_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("gpu-0", {"filesystem.mount": "/scratch"})
    for line, is_mounted in (
        ("ceph-fuse /scratch fuse.ceph-fuse rw 0 0", True),
        ("10.0.0.1:/ /scratch ceph rw 0 0", True),
        ("/dev/sda1 /scratch ext4 rw 0 0", False),
        ("ceph-fuse /scratch2 fuse.ceph-fuse rw 0 0", False),
        ("", False),
    ):
        monkeypatch.setattr(Host, "read", lambda _host, _path, line=line: line)
        assert filesystem.mounted(host) is is_mounted, line


def test_a_sample_is_written_and_nothing_is_left(tmp_path: Path) -> None:
    assert filesystem.write_and_read(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file"):
        filesystem.write_and_read(tmp_path / "gone")


def nft(name: str) -> list[Any]:
    objects: list[Any] = json.loads(recorded(name))["nftables"]
    return objects


def test_a_closed_firewall_lets_in_what_its_rules_name() -> None:
    objects = nft("nft_lab_storage.json")
    assert firewall.input_policy(objects) == "drop"
    assert firewall.let_in(objects) == ["tcp/22", "tcp/3300", "tcp/6789", "tcp/6800-7300", "udp/123"]


def test_a_loose_firewall_shows_every_hole() -> None:
    """Named sets, jumps, verdict maps, both protocols at once, negations, whole interfaces; not others' tables."""
    objects = nft("nft_loose.json")
    assert firewall.input_policy(objects) == "accept"
    found = firewall.let_in(objects)
    assert {"any", "tcp/22", "tcp/8000-8010", "tcp/6817", "tcp/53", "udp/53", "udp/123", "tcp/any"} == set(found)


def test_a_rule_that_takes_a_whole_interface_is_a_hole_in_a_closed_firewall_too() -> None:
    objects = [
        {"table": {"family": "inet", "name": "muster"}},
        {"chain": {"table": "muster", "name": "input", "hook": "input", "policy": "drop"}},
        {
            "rule": {
                "table": "muster",
                "chain": "input",
                "expr": [
                    {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "rail0"}},
                    {"accept": None},
                ],
            }
        },
    ]
    assert firewall.let_in(objects) == ["any"]


def test_no_firewall_is_absent_and_lets_in_anything() -> None:
    assert firewall.input_policy(nft("nft_empty.json")) == "absent"
    assert firewall.let_in(nft("nft_empty.json")) == ["any"]


def test_counters_and_handles_do_not_change_a_ruleset_but_rules_do() -> None:
    objects = nft("nft_lab_storage.json")
    other = json.loads(json.dumps(objects))
    for each in other:
        for thing in each.values():
            thing["handle"] = 4711
    for rule in (each["rule"] for each in other if "rule" in each):
        for statement in rule["expr"]:
            if isinstance(statement.get("counter"), dict):
                statement["counter"] = {"packets": 5, "bytes": 999}
    assert firewall.digest(other) == firewall.digest(objects)
    rules = [each for each in other if "rule" in each]
    rules[3]["rule"]["expr"].pop()
    assert firewall.digest(other) != firewall.digest(objects)


SOCKETS = """\
udp UNCONN 0 0 127.0.0.53%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=88,fd=13))
udp UNCONN 0 0 0.0.0.0:123 0.0.0.0:* users:(("chronyd",pid=90,fd=6))
tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=40,fd=3))
tcp LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=40,fd=4))
tcp LISTEN 0 5 *:8080 *:* users:(("python3",pid=99,fd=3))
tcp LISTEN 0 5 [::1]:631 [::]:*
tcp LISTEN 0 5 [::ffff:127.0.0.1]:9000 *:*
tcp LISTEN 0 5 10.77.64.11%rail0:50010 0.0.0.0:*
tcp LISTEN 0 5 [fe80::1]%mgmt0:7000 [::]:*
"""


def test_listeners_in_every_notation() -> None:
    found = ports.read_sockets(SOCKETS)
    assert [str(each) for each in found] == [
        "udp/53@127.0.0.53",
        "udp/123@0.0.0.0",
        "tcp/22@0.0.0.0",
        "tcp/22@::",
        "tcp/8080@*",
        "tcp/631@::1",
        "tcp/9000@127.0.0.1",
        "tcp/50010@10.77.64.11",
        "tcp/7000@fe80::1",
    ]
    assert ports.read_sockets(recorded("ss_lntup_lab.txt"))[0].process == "sshd"


def test_strangers_are_named_with_their_process_and_loopback_is_nobodys_business() -> None:
    found = ports.surplus(ports.read_sockets(SOCKETS), ["tcp/22", "tcp/50000-51000"])
    assert found == ["tcp/7000@fe80::1", "tcp/8080@* (python3)", "udp/123@0.0.0.0 (chronyd)"]


def test_a_port_open_for_tcp_is_not_open_for_udp() -> None:
    assert ports.surplus(ports.read_sockets(SOCKETS.splitlines()[1]), ["tcp/123"])


LOG = """\
NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:86:00): 48, pid=4711, name=python3, An uncorrectable double bit error (DBE) has been detected
NVRM: Xid (0000:af:00): 13, Graphics SM Warp Exception
NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python3,pid=77,uid=1000
Out of memory: Killed process 77 (python3) total-vm:1024kB, anon-rss:512kB
blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
nvme nvme0: I/O 12 QID 3 timeout, aborting
EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted inode referenced: 12
ata1: SATA link down (SStatus 0 SControl 300)
mlx5_core 0000:03:00.0 eth2: Link down
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down
bond0: (slave eno1): link status definitely down, disabling slave
INFO: task python3:77 blocked for more than 120 seconds.
watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]
mce: CPU supports 7 MCE banks
mce: [Hardware Error]: Machine check events logged
pcieport 0000:00:1d.0: AER: Corrected error received: 0000:07:00.0
pcieport 0000:00:01.0: AER: Correctable error message received from 0000:00:01.0
pcieport 0000:00:01.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
"""


def test_xids_are_counted_by_gpu_and_number_however_the_driver_writes_them() -> None:
    assert kernel.read_xids(LOG) == [
        {"gpu": "0000:3b:00", "xid": 79, "count": 2},
        {"gpu": "0000:86:00", "xid": 48, "count": 1},
        {"gpu": "0000:af:00", "xid": 13, "count": 1},
        {"gpu": "0000:b3:00", "xid": 79, "count": 1},
    ]
    assert kernel.read_xids("nothing of note") == []


def test_the_kernels_complaints_are_told_apart() -> None:
    counts = {
        name: kernel.lines(getattr(kernel, name), LOG)
        for name in ("OOM", "IO_ERROR", "LINK_DOWN", "HUNG_TASK", "MACHINE_CHECK", "PCIE_ERROR")
    }
    assert counts == {"OOM": 2, "IO_ERROR": 3, "LINK_DOWN": 4, "HUNG_TASK": 2, "MACHINE_CHECK": 1, "PCIE_ERROR": 3}


def test_packages_and_what_became_of_them() -> None:
    found = packages.read_packages(recorded("dpkg_query.txt"))
    assert {each.name: each.version for each in found}["chrony"] == "4.3-2+deb12u3"
    assert all(each.installed for each in found)
    one, two, three = packages.read_packages(
        "nvidia-open\t580.95.05-1\thold\tinstalled\tok\nlibnccl2\t2.28.9\tinstall\thalf-configured\tok\n"
        "slurmd\t22.05\tinstall\tinstalled\treinstreq\n"
    )
    assert (one.held, one.installed) == (True, True)
    assert (two.installed, three.installed) == (False, False)


def test_pins_are_answered_by_name_and_a_missing_package_has_no_version() -> None:
    host = Answers({"dpkg-query": "dpkg_query.txt"}, {"pins.packages": {"chrony": "4.3", "nvidia-open": "580"}})
    assert packages.pinned(host) == {"chrony": "4.3-2+deb12u3", "nvidia-open": None}


def test_slurms_line_of_a_node() -> None:
    assert scheduler.read_node(recorded("scontrol_node.txt")) == {
        "state": "IDLE+DRAIN+INVALID_REG",
        "reason": "muster: no certificate",
        "gres": "gpu:8",
    }
    told = "NodeName=a State=DOWN*+DRAIN Gres=(null) Reason=bad disk, see ticket [root@2026-11-29T15:00:00]"
    assert scheduler.read_node(told) == {"state": "DOWN*+DRAIN", "reason": "bad disk, see ticket", "gres": None}
    with pytest.raises(ValueError, match="shows no state"):
        scheduler.read_node("slurm_load_node error: Unable to contact slurm controller")


def test_sshd_tells_its_settings() -> None:
    found = users.read_settings(recorded("sshd_T.txt"))
    assert found["permitrootlogin"] == "no"
    assert found["pubkeyauthentication"] == "yes"
    with pytest.raises(Unmeasurable):
        users.read_settings("")


def test_who_becomes_root_by_sudo() -> None:
    rules = json.loads(recorded("cvtsudoers.json"))
    assert users.sudoers(rules, {"sudo": ["alice", "bob"]}) == {"root", "muster", "alice", "bob"}


def test_passwords_are_told_apart() -> None:
    shadow = "root:*:19000:0:99999:7:::\na:$y$j9T$x:19000:0:99999:7:::\nb::19000:0:99999:7:::\nc:!$y$x:19000::::::\n"
    shadow += "d:$y$x:19000:0:99999:7::100:\n"
    assert users.passwords(shadow, today=200) == {
        "root": "locked",
        "a": "set",
        "b": "empty",
        "c": "locked",
        "d": "expired",
    }


def test_a_key_file_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    assert not users.has_key(tmp_path)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "authorized_keys").write_text("# none yet\n\n")
    assert not users.has_key(tmp_path)
    (tmp_path / ".ssh" / "authorized_keys").write_text("ssh-ed25519 AAAA someone\n")
    assert users.has_key(tmp_path)


def test_units_as_systemd_lists_them() -> None:
    host = Answers({"list-units": "systemctl_units.json"})
    assert services.active(host)["ssh.service"] == "active"
    assert all(name.endswith(".service") for name in services.active(host))
    assert services.failed(host) == []


def test_limits() -> None:
    told = recorded("proc_limits.txt")
    assert services.hard_limit(told, "Max open files") == 20000
    assert services.hard_limit(told, "Max cpu time") == resource.RLIM_INFINITY
    assert services.least([resource.RLIM_INFINITY, 8388608]) == 8388608
    assert services.least([resource.RLIM_INFINITY]) == "unlimited"
    with pytest.raises(LookupError):
        services.hard_limit(told, "Max happiness")


def test_a_settings_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "range").write_text("32768\t60999\n")
    (tmp_path / "secret").write_text("x")
    assert services.setting(tmp_path / "proc", "net.range") == "32768 60999"
    assert services.setting(tmp_path / "proc", "net.missing") is None
    for name in ("//.secret", "...secret", "/secret", "//./.secret"):
        assert services.setting(tmp_path / "proc", name) is None


def test_interfaces_as_ip_tells_them() -> None:
    found = {each["ifname"]: each for each in json.loads(recorded("ip_address.json")) if "ifname" in each}
    assert network.interface(found["mgmt0"], "10.77.1.14/24") | {"speed_gbps": None} == {
        "address": "10.77.1.14/24",
        "mtu": 1500,
        "state": "up",
        "speed_gbps": None,
    }
    assert network.interface(found["rail0"], "10.77.64.14/24")["state"] == "down"
    assert network.interface(None, "10.77.64.14/24")["state"] == "absent"
    other = network.interface(found["mgmt0"], "10.77.1.99/24")["address"]
    assert other == "10.77.1.14/24", "a wrong address is shown, not hidden"


FPING = """\
10.77.1.11 : xmt/rcv/%loss = 10/10/0%, min/avg/max = 0.060/0.079/0.116
10.77.1.12 : xmt/rcv/%loss = 10/9/10%, min/avg/max = 0.060/0.079/0.116
10.77.1.13 : xmt/rcv/%loss = 10/0/100%
ICMP Host Unreachable from 10.77.1.14 for ICMP Echo sent to 10.77.1.13
10.77.1.9  : xmt/rcv/%loss = 0/0/0%
"""


def test_losses_as_fping_tells_them() -> None:
    """A peer that nothing was sent to is lost: 0 of 0 is not 0 %."""
    assert network.lost(FPING) == {"10.77.1.11": 0.0, "10.77.1.12": 10.0, "10.77.1.13": 100.0, "10.77.1.9": 100.0}


def sysfs(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_bonds_link_counts_once_it_carries_traffic(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path,
        {
            "stor0/bonding/mode": "802.3ad 4\n",
            "stor0/bonding/slaves": "p0 p1 p2\n",
            "stor0/bonding/ad_aggregator": "1\n",
            **{f"p{i}/bonding_slave/mii_status": text for i, text in enumerate(("up\n", "down\n", "up\n"))},
            **{f"p{i}/bonding_slave/ad_aggregator_id": text for i, text in enumerate(("1\n", "1\n", "2\n"))},
        },
    )
    assert network.bond(root, "stor0", ["p0", "p1", "p3"]) == {
        "mode": "802.3ad",
        "up": ["p0"],
        "down": ["p1", "p2", "p3"],
    }


def test_rdma_ports_and_counters_from_sysfs(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path,
        {
            "mlx5_0/ports/1/state": "4: ACTIVE\n",
            "mlx5_0/ports/1/phys_state": "5: LinkUp\n",
            "mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "mlx5_0/ports/1/counters/symbol_error": "3\n",
            "mlx5_0/ports/1/hw_counters/out_of_sequence": "0\n",
        },
    )
    (path,) = rdma.port_folders(root)
    assert rdma.port(path, "ib0") == {
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "link_layer": "InfiniBand",
        "rate_gbps": 400.0,
        "netdev": "ib0",
    }
    assert rdma.counters(root) == {"mlx5_0/1/symbol_error": 3, "mlx5_0/1/out_of_sequence": 0}


def test_no_rdma_device_is_no_healthy_port(tmp_path: Path) -> None:
    with pytest.raises(Unmeasurable):
        rdma.port_folders(tmp_path)


def test_identity_names_hardware_only(tmp_path: Path) -> None:
    for name in ("eno1", "eno2", "eno1v0"):
        (tmp_path / name / "device").mkdir(parents=True)
    (tmp_path / "eno1v0" / "device" / "physfn").mkdir()
    (tmp_path / "bond0" / "bonding").mkdir(parents=True)
    links = {
        "lo": {"link_type": "loopback", "address": "00:00:00:00:00:00"},
        "eno1": {"link_type": "ether", "address": "02:00:00:00:00:01"},
        "eno2": {"link_type": "ether", "address": "02:00:00:00:00:01", "permaddr": "02:00:00:00:00:02"},
        "eno1v0": {"link_type": "ether", "address": "02:00:00:00:00:03"},
        "bond0": {"link_type": "ether", "address": "02:00:00:00:00:01"},
        "docker0": {"link_type": "ether", "address": "02:00:00:00:00:05"},
        "rail0": {"link_type": "ether", "address": "02:00:00:00:00:06", "link_index": 7},
        "stor0.20": {"link_type": "ether", "address": "02:00:00:00:00:01", "link": "bond0"},
    }
    declared = {"bond0", "rail0", "stor0.20"}
    assert macs(tmp_path, links, declared) == ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:06"]


def test_disks_are_local_writable_and_named_once() -> None:
    found = machine.local_mounts(recorded("proc_mounts.txt"))
    assert "/" in found
    assert "/dev/shm" in found  # noqa: S108
    assert not [path for path in found if path.startswith(("/proc", "/sys", "/run/user"))]
    told = "/dev/sda1 / ext4 rw 0 0\n/dev/sda1 /srv/bind ext4 rw 0 0\n/dev/sdb1 /my\\040data xfs rw 0 0\n"
    told += "ceph:/ /scratch ceph rw 0 0\n/dev/loop0 /snap squashfs ro 0 0\n/dev/sdc1 /old ext4 ro 0 0\n"
    assert machine.local_mounts(told) == ["/", "/my data"]


def test_memory_in_gib() -> None:
    assert machine.meminfo(recorded("proc_meminfo.txt"))["MemTotal"] > 0
