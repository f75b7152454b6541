"""The hardware's figures come from the kernel and from NVML; what cannot be read is absent, never zero."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from images.store import Builder
from images.vendor.gpus import simulated_gpus
from images.vendor.nvml import SONAME, compile_library, header
from runtime.telemetry.hardware import DEVICES_LIMIT, Hardware, interfaces, rdma, tcp
from spec.schema import Gpus

ROOT = Path(__file__).parents[3]


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_interfaces_are_counted_and_those_of_containers_are_not(tmp_path: Path) -> None:
    for name in ("eth0", "veth12ab", "lo", "cali1", "ib0"):
        write(tmp_path / "sys/class/net" / name / "statistics/rx_bytes", 7)
        write(tmp_path / "sys/class/net" / name / "statistics/tx_errors", "nonsense")
    found = list(interfaces(tmp_path))
    assert [(each.name, each.labels, each.value) for each in found] == [
        ("network_receive_bytes", {"interface": "eth0"}, 7),
        ("network_receive_bytes", {"interface": "ib0"}, 7),
    ]
    for number in range(3 * DEVICES_LIMIT):
        write(tmp_path / f"sys/class/net/x{number:04}/statistics/rx_bytes", 1)
    assert len({each.labels["interface"] for each in interfaces(tmp_path)}) == DEVICES_LIMIT


def test_rdma_ports_tell_bytes_and_what_went_wrong(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    write(port / "counters/port_rcv_data", 1000)
    write(port / "counters/symbol_error", 3)
    write(port / "counters/port_rcv_packets", 12)  # not one of those that are told
    write(port / "hw_counters/out_of_sequence", 4)
    write(port / "hw_counters/packet_seq_err", "N/A (no PMA)")
    told = {(each.name, each.labels.get("counter")): each.value for each in rdma(tmp_path)}
    assert told == {
        ("rdma_receive_bytes", None): 4000,
        ("rdma_counter", "symbol_error"): 3,
        ("rdma_counter", "out_of_sequence"): 4,
    }


def test_retransmitted_segments_are_told(tmp_path: Path) -> None:
    write(tmp_path / "proc/net/snmp", "Ip: A B\nIp: 1 2\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 900 5")
    assert [(each.name, each.value) for each in tcp(tmp_path)] == [
        ("tcp_retransmitted_segments", 5),
        ("tcp_sent_segments", 900),
    ]
    write(tmp_path / "proc/net/snmp", "Tcp: RetransSegs")
    assert list(tcp(tmp_path)) == []


def test_a_machine_without_any_of_it_tells_nothing_of_it(tmp_path: Path) -> None:
    assert [*interfaces(tmp_path), *rdma(tmp_path), *tcp(tmp_path)] == []


def test_this_machine_is_measured() -> None:
    found = {each.name: each for each in Hardware(whole_node=True).readings()}
    assert found["process_resident_bytes"].value > 1 << 20
    assert 0 < found["host_memory_available_bytes"].value < found["host_memory_bytes"].value
    assert found["tcp_sent_segments"].total
    only_own = {each.name for each in Hardware(whole_node=False).readings()}
    assert only_own == {"process_resident_bytes", "process_cpu_seconds", "process_threads"}


@pytest.fixture
def simulated(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds the simulated NVML, of two GPUs."""
    builder = Builder(log=tmp_path / "log", lock=os.open(tmp_path / "lock", os.O_CREAT), say=print)
    library = compile_library(tmp_path, header(print), "580.95.05", 13000, builder)
    (tmp_path / SONAME).symlink_to(library.name)
    gpus = Gpus(model="NVIDIA H100 80GB HBM3", count=2, memory_gib=80, nvlinks=18, nvlink_gbps=3600)
    (tmp_path / "gpus.ini").write_text(simulated_gpus(gpus, "lab/gpu-0"))
    return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "MUSTER_SIMULATED_GPUS": str(tmp_path / "gpus.ini")}


def test_gpus_are_told_by_nvml_and_what_one_does_not_support_is_absent(
    simulated: dict[str, str], tmp_path: Path
) -> None:
    program = """
import json
from runtime.telemetry.hardware import Gpus
print(json.dumps([[each.name, each.labels["gpu"], each.value] for each in Gpus().readings()]))
"""

    def told() -> dict[tuple[str, str], float]:
        done = subprocess.run(
            [sys.executable, "-c", program], env=simulated, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return {(name, gpu): value for name, gpu, value in json.loads(done.stdout)}

    healthy = told()
    assert healthy["gpu_power_watts", "0"] == 71
    assert healthy["gpu_temperature_celsius", "1"] > 0
    assert healthy["gpu_ecc_uncorrected", "1"] == 0
    assert healthy["gpu_memory_bytes", "0"] > 79 * 2**30
    state = tmp_path / "gpus.ini"
    lines = [line for line in state.read_text().splitlines() if not line.startswith(("power_mw", "ecc."))]
    state.write_text("\n".join(lines) + "\n")
    assert set(healthy) - set(told()) >= {("gpu_power_watts", "0"), ("gpu_ecc_uncorrected", "0")}
