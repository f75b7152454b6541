"""The state file of a node's simulated GPUs, made of the spec: healthy GPUs, which faults are then written into."""

import hashlib
import uuid
from dataclasses import dataclass

from spec.schema import Gpus

STATE_FILE = "/etc/muster/simulated-gpus.ini"
"""Where nodes have it. The library reads it again when it was replaced; replace it by rename, never in place."""


@dataclass(frozen=True)
class Model:
    """What NVML says about a product, whichever board it is. Power in watts, clocks in MHz, links in MB/s."""

    memory_mib: int
    pci_device: int
    pci_subsystem: int
    pcie_generation: int
    power: int
    idle_power: int
    graphics_clock: int
    memory_clock: int
    nvlink_version: int
    nvlink_speed: int
    architecture: int
    capability: tuple[int, int]
    cores: int


MODELS: dict[str, Model] = {
    "NVIDIA A100-SXM4-80GB": Model(81920, 0x20B210DE, 0x146310DE, 4, 400, 62, 1410, 1593, 3, 25781, 7, (8, 0), 6912),
    "NVIDIA H100 80GB HBM3": Model(81559, 0x233010DE, 0x16C110DE, 5, 700, 71, 1980, 2619, 4, 26562, 9, (9, 0), 16896),
    "NVIDIA H200": Model(143771, 0x233510DE, 0x18BE10DE, 5, 700, 76, 1980, 3201, 4, 26562, 9, (9, 0), 16896),
    "NVIDIA B200": Model(183359, 0x290110DE, 0x199910DE, 5, 1000, 140, 1965, 3996, 5, 53125, 10, (10, 0), 18944),
}
"""Products that can be simulated, by NVML's name. Sources: the vendor's data sheets, and `nvidia-smi -q` of such boards
in public reports; they make a lab look right and are no reference."""

ON, OFF = 1, 0
SLOTS = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
"""PCI bus numbers of the eight GPUs of an HGX baseboard; further ones follow."""


def simulated_gpus(gpus: Gpus, node: str) -> str:
    """The state file's text for one node's GPUs, all of them healthy. Pure.

    Args: `node` names the node among those of all clusters, as in `lab/gpu-0`: UUIDs and serial numbers follow from it.
    Raises ValueError for a model that is not in MODELS.
    """
    model = MODELS.get(gpus.model)
    if model is None:
        raise ValueError(
            f"{gpus.model!r} cannot be simulated · nodes[].gpus.model · take one of {', '.join(sorted(MODELS))}"
        )
    sections: dict[str, dict[str, int | str]] = {"system": {"gpus": gpus.count}, "gpu": _shared(gpus, model)}
    sections |= {f"gpu {index}": _own(node, index) for index in range(gpus.count)}
    lines = [
        "# Simulated GPUs: no hardware behind this. Facts left out are unsupported; see images/vendor/nvml/state.h."
    ]
    for name, facts in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {value}" for key, value in facts.items())]
    return "\n".join(lines) + "\n"


def _shared(gpus: Gpus, model: Model) -> dict[str, int | str]:
    facts: dict[str, int | str] = {
        "name": gpus.model,
        "architecture": model.architecture,
        "compute_capability.major": model.capability[0],
        "compute_capability.minor": model.capability[1],
        "cores": model.cores,
        "pci.device_id": f"0x{model.pci_device:08x}",
        "pci.subsystem_id": f"0x{model.pci_subsystem:08x}",
        "pcie.generation": model.pcie_generation,
        "pcie.max_generation": model.pcie_generation,
        "pcie.width": 16,
        "pcie.max_width": 16,
        "pcie.replays": 0,
        "temperature_c": 31,
        "temperature_slowdown_c": 89,
        "temperature_shutdown_c": 92,
        "temperature_max_c": 87,
        "temperature_memory_max_c": 95,
        "power_mw": model.idle_power * 1000,
        "power_limit_mw": model.power * 1000,
        "power_default_limit_mw": model.power * 1000,
        "power_min_limit_mw": 200_000,
        "power_max_limit_mw": model.power * 1000,
        "energy_mj": 0,
        "performance_state": 0,
        "throttle_reasons": "0x1",
        "clocks.graphics_mhz": 345,
        "clocks.sm_mhz": 345,
        "clocks.video_mhz": 765,
        "clocks.memory_mhz": model.memory_clock,
        "clocks.max_graphics_mhz": model.graphics_clock,
        "clocks.max_sm_mhz": model.graphics_clock,
        "clocks.max_memory_mhz": model.memory_clock,
        "memory.total_mib": model.memory_mib,
        "memory.used_mib": 0,
        "memory.reserved_mib": 530,
        "memory.temperature_c": 34,
        "utilisation.gpu": 0,
        "utilisation.memory": 0,
        "ecc.mode": ON,
        "ecc.pending_mode": ON,
        "ecc.default_mode": ON,
        "ecc.volatile_corrected": 0,
        "ecc.volatile_uncorrected": 0,
        "ecc.aggregate_corrected": 0,
        "ecc.aggregate_uncorrected": 0,
        "remapped.correctable": 0,
        "remapped.uncorrectable": 0,
        "remapped.pending": 0,
        "remapped.failure": 0,
        "remapped.banks_max": 2560,
        "remapped.banks_high": 0,
        "remapped.banks_partial": 0,
        "remapped.banks_low": 0,
        "remapped.banks_none": 0,
        "recovery_action": 0,
        "persistence": "@/run/nvidia-persistenced/nvidia-persistenced.pid 1 0",
        "compute_mode": 0,
        "mig.mode": OFF,
        "mig.pending_mode": OFF,
    }
    if gpus.nvlinks:
        facts |= {
            "nvlink.count": gpus.nvlinks,
            "nvlink.state": ON,
            "nvlink.version": model.nvlink_version,
            "nvlink.speed_mbps": model.nvlink_speed,
            "nvlink.remote_type": 2,
            "nvlink.remote_bus": 5,
            "nvlink.replay_errors": 0,
            "nvlink.recovery_errors": 0,
            "nvlink.crc_flit_errors": 0,
            "nvlink.crc_data_errors": 0,
            "nvlink.ecc_data_errors": 0,
            "fabric.state": "@/run/nvidia-fabricmanager/nv-fabricmanager.pid 3 1",
            "fabric.status": 0,
            "fabric.clique": 0,
            "fabric.cluster": "0" * 32,
            "fabric.health_mask": 0,
            "fabric.health_summary": 1,
        }
    return facts


def _own(node: str, index: int) -> dict[str, int | str]:
    """What tells one GPU from all others."""
    digest = hashlib.sha256(f"muster simulated gpu {node} {index}".encode()).digest()
    slot = SLOTS[index] if index < len(SLOTS) else 0xDB + 1 + index - len(SLOTS)
    return {
        "uuid": f"GPU-{uuid.UUID(bytes=digest[:16], version=4)}",
        "serial": f"165{int.from_bytes(digest[16:20]) % 10**10:010d}",
        "minor": index,
        "pci.bus_id": f"00000000:{slot:02X}:00.0",
    }
