"""Installed packages and their versions, as dpkg knows them."""

import re
from dataclasses import dataclass

from validation.node.host import Host
from validation.node.measure import measure

STACK = re.compile(
    r"^(nvidia-|libnvidia-|cuda-|libnccl|datacenter-gpu-manager|mlnx-|doca-|rdma-core$|libibverbs|perftest$|ceph|slurm"
    r"|munge$|chrony$|linux-image-)"
)
"""Packages whose versions decide whether training runs: GPU, fabric, storage and scheduler."""

FORMAT = "${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\t${db:Status-Eflag}\n"


@dataclass(frozen=True)
class Package:
    """A package that dpkg knows."""

    name: str
    version: str
    held: bool
    state: str

    @property
    def installed(self) -> bool:
        """Whether it is there and configured."""
        return self.state == "installed"


@measure("pins.packages", source="dpkg-query")
def pinned(host: Host) -> dict[str, str | None]:
    """Versions of the packages that the pins name, none where one is not installed.

    Without pins, of all installed packages of the GPU, fabric, storage and scheduler stack.
    """
    found = {each.name: each.version for each in host.once(packages) if each.installed}
    names = host.expectations.get("pins.packages")
    if names is None:
        return {name: version for name, version in sorted(found.items()) if STACK.match(name)}
    return {name: found.get(name) for name in names}


@measure("packages.held", source="dpkg-query")
def held(host: Host) -> list[str]:
    """Packages that no upgrade may change."""
    return sorted({each.name for each in host.once(packages) if each.held and each.installed})


@measure("packages.broken", source="dpkg-query")
def broken(host: Host) -> list[str]:
    """Packages that are neither installed nor gone: an installation stopped half-way."""
    whole = ("installed", "not-installed", "config-files")
    return sorted({each.name for each in host.once(packages) if each.state not in whole})


def packages(host: Host) -> list[Package]:
    """All that dpkg knows."""
    return read_packages(host.run("dpkg-query", "--show", "--showformat", FORMAT))


def read_packages(told: str) -> list[Package]:
    """The packages in dpkg-query's lines of five fields. One that needs to be installed again is `reinstreq`."""
    found = []
    for line in told.splitlines():
        name, version, want, state, flag = line.split("\t")
        found.append(Package(name, version, want == "hold", state if flag == "ok" else flag))
    return found
