"""What the node and its devices say, as numbers: NVML, psutil, network interfaces, RDMA ports.

What cannot be read is absent, never zero. Names of devices come from the kernel and are few; they are capped even so.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import pynvml  # type: ignore[import-untyped]

DEVICES_LIMIT = 64
"""Interfaces, RDMA ports or GPUs of one node that are told."""

VIRTUAL = re.compile(r"^(lo|veth|cali|cni|docker|br-|virbr|flannel|lxc|ifb|dummy|tap|tun|kube-)")
"""Interfaces that come and go with containers, or go nowhere."""

INTERFACE = {
    "rx_bytes": ("network_receive_bytes", "Bytes received"),
    "tx_bytes": ("network_transmit_bytes", "Bytes sent"),
    "rx_errors": ("network_receive_errors", "Receive errors"),
    "tx_errors": ("network_transmit_errors", "Transmit errors"),
    "rx_dropped": ("network_receive_dropped", "Packets dropped on receiving"),
    "tx_dropped": ("network_transmit_dropped", "Packets dropped on sending"),
}
RDMA = frozenset(
    {
        # counters/, all rates of errors in events; data in units of four bytes
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "port_xmit_discards", "port_xmit_wait", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
        # hw_counters/ of mlx5, and of Soft-RoCE after that
        "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer",
        "req_cqe_error", "resp_cqe_error", "roce_adp_retrans", "roce_adp_retrans_to", "np_cnp_sent", "rp_cnp_handled",
        "np_ecn_marked_roce_packets", "rx_icrc_encapsulated",
        "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err", "send_rnr_err",
        "duplicate_request", "rcvd_seq_err",
    }
)  # fmt: skip
"""Counters that say how a rail is. Source: the kernel's sysfs-class-infiniband, mlx5 and rxe_hw_counters.c."""
WORD_BYTES = 4


class Reading(NamedTuple):
    """One figure. `total` only rises (a counter), else it is what it is now (a gauge)."""

    name: str
    about: str
    value: float
    total: bool
    labels: dict[str, str]


def host() -> Iterator[Reading]:
    """This machine's and this process' processors and memory."""

    def gauge(name: str, about: str, value: float) -> Reading:
        return Reading(name, about, value, False, {})

    yield gauge("host_cpu_ratio", "Share of all processors in use since the last reading", psutil.cpu_percent() / 100)
    memory = psutil.virtual_memory()
    yield gauge("host_memory_available_bytes", "Memory that can be had without swapping", memory.available)
    yield gauge("host_memory_bytes", "Memory", memory.total)
    yield gauge("host_swap_used_bytes", "Swap in use", psutil.swap_memory().used)
    yield gauge("host_load1", "Load of the last minute", psutil.getloadavg()[0])


class Process:
    """This process."""

    def __init__(self) -> None:
        self._process = psutil.Process()

    def readings(self) -> Iterator[Reading]:
        """Memory, processor time and threads of the rank."""
        with self._process.oneshot():
            times = self._process.cpu_times()
            rss = self._process.memory_info().rss
            threads = self._process.num_threads()
        yield Reading("process_resident_bytes", "Resident memory of the rank", rss, False, {})
        yield Reading("process_cpu_seconds", "Processor time of the rank", times.user + times.system, True, {})
        yield Reading("process_threads", "Threads of the rank", threads, False, {})


def interfaces(root: Path = Path("/")) -> Iterator[Reading]:
    """Counters of each network interface."""
    names = sorted(each.name for each in _entries(root / "sys/class/net") if not VIRTUAL.match(each.name))
    for name in names[:DEVICES_LIMIT]:
        for file, (metric, about) in INTERFACE.items():
            value = _number(root / "sys/class/net" / name / "statistics" / file)
            if value is not None:
                yield Reading(metric, about, value, True, {"interface": name})


def tcp(root: Path = Path("/")) -> Iterator[Reading]:
    """Retransmitted TCP segments of the network namespace: the kernel does not count them by interface."""
    try:
        lines = (root / "proc/net/snmp").read_text().splitlines()
    except OSError:
        return
    heads, values = ([line.split()[1:] for line in lines if line.startswith("Tcp:")] + [[], []])[:2]
    found = dict(zip(heads, values, strict=False))
    for field, metric, about in (
        ("RetransSegs", "tcp_retransmitted_segments", "TCP segments sent again"),
        ("OutSegs", "tcp_sent_segments", "TCP segments sent"),
    ):
        if found.get(field, "").isdigit():
            yield Reading(metric, about, int(found[field]), True, {})


def rdma(root: Path = Path("/")) -> Iterator[Reading]:
    """Counters of each RDMA port: one rail is one device."""
    ports = [port for device in _entries(root / "sys/class/infiniband") for port in _entries(device / "ports")]
    for port in sorted(ports)[:DEVICES_LIMIT]:
        labels = {"device": port.parent.parent.name, "port": port.name}
        for file, metric, about in (
            ("port_rcv_data", "rdma_receive_bytes", "Bytes received over RDMA"),
            ("port_xmit_data", "rdma_transmit_bytes", "Bytes sent over RDMA"),
        ):
            value = _number(port / "counters" / file)
            if value is not None:
                yield Reading(metric, about, value * WORD_BYTES, True, labels)
        for counter in sorted((*_entries(port / "counters"), *_entries(port / "hw_counters"))):
            value = _number(counter) if counter.name in RDMA else None
            if value is not None:
                told = {**labels, "counter": counter.name}
                yield Reading("rdma_counter", "Counters of RDMA ports by the driver's names", value, True, told)


class Gpus:
    """The node's GPUs by NVML. Without NVML there are none; a figure that a device does not have is absent."""

    def __init__(self) -> None:
        self._nvml = pynvml
        self._handles: list[Any] = []
        try:
            pynvml.nvmlInit()
            count = min(pynvml.nvmlDeviceGetCount(), DEVICES_LIMIT)
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError:
            return

    def readings(self) -> Iterator[Reading]:
        """Utilisation, memory, temperature, power, clocks, errors of each."""
        for index, handle in enumerate(self._handles):
            yield from self._of(handle, {"gpu": str(index)})

    def _of(self, handle: Any, labels: dict[str, str]) -> Iterator[Reading]:
        nvml = self._nvml
        asked: Iterable[tuple[str, str, bool, Any]] = (
            ("gpu_busy_ratio", "Share of time with a kernel running", False,
             lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("gpu_memory_used_bytes", "Device memory in use", False, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            ("gpu_memory_bytes", "Device memory", False, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total),
            ("gpu_temperature_celsius", "Temperature of the device", False,
             lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            ("gpu_power_watts", "Power drawn", False, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            ("gpu_sm_clock_hertz", "Clock of the multiprocessors", False,
             lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
            ("gpu_ecc_uncorrected", "Uncorrected memory errors since the device was reset", False,
             lambda: nvml.nvmlDeviceGetTotalEccErrors(
                 handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)),
            ("gpu_pcie_replays", "PCIe packets sent again", True,
             lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
        )  # fmt: skip
        for name, about, total, ask in asked:
            try:
                yield Reading(name, about, float(ask()), total, labels)
            except nvml.NVMLError:
                continue


class Hardware:
    """All readings of one rank: its own process; and of its whole node where it leads the node."""

    def __init__(self, whole_node: bool, root: Path = Path("/")) -> None:
        self._root = root
        self._process = Process()
        self._gpus = Gpus() if whole_node else None
        psutil.cpu_percent()  # the first says nothing: it is measured from one call to the next

    def readings(self) -> Iterator[Reading]:
        """What there is to read now."""
        yield from self._process.readings()
        if self._gpus is not None:
            yield from host()
            yield from interfaces(self._root)
            yield from tcp(self._root)
            yield from rdma(self._root)
            yield from self._gpus.readings()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None
