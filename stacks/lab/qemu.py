"""QEMU's command line, and what a virtual machine is given besides: its names of ports and its way in. Pure."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from stacks.lab.accelerator import QEMU, Accelerator
from stacks.lab.disk import VENDOR_MOUNT
from stacks.lab.links import cable
from stacks.lab.model import Machine, Port

APPEND = (
    "root=/dev/vda rw console=ttyS0 muster.identity "
    # Nobody logs in at the console, and each character of it is emulated.
    "systemd.getty_auto=no systemd.show_status=error "
    # An emulated machine on a busy computer: services start late, and systemd's limit of 90 s would end them. What the
    # kernel does against its processor's faults is of no use in an emulator, and costs.
    "systemd.default_timeout_start_sec=600 mitigations=off "
    # A processor that waits for the host's is no lockup: the kernel's limits are raised to what they can be.
    "sysctl.kernel.watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300"
)
VENDOR_TAG = "vendor"


class Places(BaseModel):
    """Paths on the host that the command line names."""

    model_config = ConfigDict(frozen=True)

    where: Path
    """The machine's folder."""
    kernel: Path
    initrd: Path
    vendor: Path | None
    """The vendor repository, none where it does not exist."""


def command(machine: Machine, places: Places, accelerator: Accelerator) -> list[str]:
    """What starts a machine in the background; run in the lab's namespace, where its taps are."""
    where = places.where
    fast = accelerator is Accelerator.KVM
    return [
        *(QEMU, "-name", machine.name, "-daemonize", "-pidfile", str(where / "qemu.pid")),
        *("-accel", "kvm" if fast else "tcg,thread=multi", "-cpu", "host" if fast else "max"),
        *("-smp", str(machine.cpus), "-m", str(machine.memory_mib), "-nodefaults", "-display", "none"),
        *("-serial", f"file:{where / 'console.log'}", "-device", "virtio-rng-pci"),
        *("-kernel", str(places.kernel), "-initrd", str(places.initrd), "-append", APPEND),
        *("-drive", f"file={_value(where / 'disk.qcow2')},format=qcow2,if=virtio,discard=unmap"),
        *("-drive", f"file={_value(where / 'identity.img')},format=raw,if=virtio,readonly=on"),
        *(word for port in machine.ports for word in _card(machine, port)),
        *(_share(places.vendor) if places.vendor else ()),
    ]


def _card(machine: Machine, port: Port) -> list[str]:
    end = cable(machine.name, port.name)
    return [
        *("-netdev", f"tap,id={port.name},ifname={end},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev={port.name},mac={port.mac},romfile="),
    ]


def _share(vendor: Path) -> list[str]:
    shared = f"local,path={_value(vendor)},mount_tag={VENDOR_TAG},security_model=none,readonly=on"
    return ["-virtfs", shared]


def _value(path: Path) -> str:
    """A path as a value in a list of options, where a comma is written twice."""
    return str(path).replace(",", ",,")


def files(machine: Machine) -> dict[str, str]:
    """What is written on a machine's root besides its identity: names of ports by MAC, and management's address."""
    found = {
        f"etc/systemd/network/10-lab-{port.name}.link": (
            f"[Match]\nPermanentMACAddress={port.mac}\n\n[Link]\nName={port.name}\n"
        )
        for port in machine.ports
    }
    # The host key is handed in: making others, as the image does, takes an emulated machine a minute.
    found["etc/systemd/system/ssh.service.d/host-keys.conf"] = (
        "[Service]\nExecStartPre=\nExecStartPre=/usr/sbin/sshd -t\n"
    )
    for port in machine.ports:
        if port.address:
            found[f"etc/systemd/network/10-lab-{port.name}.network"] = (
                f"[Match]\nName={port.name}\n\n[Network]\nAddress={port.address}\n"
                "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
            )
    if machine.vendor:
        found["etc/systemd/system/srv-muster-vendor.mount"] = (
            "[Unit]\nDescription=The vendor's package repository\n\n"
            f"[Mount]\nWhat={VENDOR_TAG}\nWhere={VENDOR_MOUNT}\nType=9p\nOptions=ro,trans=virtio,version=9p2000.L\n"
        )
    return found


def enabled(machine: Machine) -> dict[str, str]:
    """Units that start with the machine, each with the file that it is."""
    found = {"systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service"}
    if machine.vendor:
        found["srv-muster-vendor.mount"] = "/etc/systemd/system/srv-muster-vendor.mount"
    return found
