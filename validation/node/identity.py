"""Which hardware this is: the parts that `policies.identity` binds a certificate to."""

from pathlib import Path

from validation.node.host import Host
from validation.node.machine import is_container
from validation.node.measure import Json, Unmeasurable
from validation.node.network import INTERFACES, addresses
from validation.node.nvml import Nvml
from validation.node.rdma import DEVICES


def identity(host: Host, nvml: Nvml) -> dict[str, Json]:
    """`{machine_id, system_uuid, system_serial, gpus, hcas, macs}`.

    A part that the node does not have is empty; one that should be there and could not be read is null.
    """
    return {
        "machine_id": _known(lambda: host.read("/etc/machine-id")),
        "system_uuid": _known(lambda: _dmi(host, "product_uuid")),
        "system_serial": _known(lambda: _dmi(host, "product_serial")),
        "gpus": _known(lambda: gpus(host, nvml)),
        "hcas": _known(lambda: [host.read(path) for path in sorted(DEVICES.glob("*/node_guid"))]),
        "macs": _known(lambda: macs(INTERFACES, host.once(addresses), _declared(host))),
    }


def gpus(host: Host, nvml: Nvml) -> list[str] | None:
    """UUIDs of all GPUs; none of them known where the spec expects GPUs and NVML tells of none."""
    try:
        return list(nvml.each_gpu(lambda gpu: str(gpu("UUID"))).values())
    except Unmeasurable:
        return None if host.expectations.get("gpu.count") else []


def macs(root: Path, links: dict[str, Json], declared: set[str]) -> list[str]:
    """Permanent addresses of the Ethernet ports that are hardware, or that the spec declares where they are not.

    Left out are bonds and VLANs, which borrow an address; virtual functions, which come and go; ports of USB, whose
    addresses are often drawn at random.
    """
    found = []
    for name, told in sorted(links.items()):
        device = root / name / "device"
        hardware = device.exists() and not (device / "physfn").exists() and "/usb" not in str(device.resolve())
        borrowed = (root / name / "bonding").exists() or bool(told.get("link"))
        virtual = not device.exists() and name in declared and not borrowed
        if told.get("link_type") == "ether" and (hardware or virtual):
            found.append(told.get("permaddr") or told["address"])
    return found


def _declared(host: Host) -> set[str]:
    bonds = host.expectations.get("network.bonds", {})
    return {*host.expectations.get("network.interfaces", {}), *(link for links in bonds.values() for link in links)}


def _dmi(host: Host, part: str) -> str:
    """A DMI field; empty in a container, which would show its host's, and on a machine without DMI."""
    try:
        return "" if host.once(is_container) else host.read(f"/sys/class/dmi/id/{part}")
    except Unmeasurable:
        return ""


def _known(read: Json) -> Json:
    try:
        return read()
    except Exception:
        return None
