"""Version pins: what is installed where, to the last revision, in `policies/pins/NAME.yaml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from policies.canonical import digest
from policies.reading import PolicyError, read
from spec.plan import ClusterPlan, Expectations, Node, expectations
from spec.schema import Role

PINS = Path(__file__).parent / "pins"

Component: TypeAlias = Literal[
    "ceph",
    "cuda",
    "dcgm",
    "driver",
    "fabric_manager",
    "gdrcopy",
    "kernel",
    "nccl",
    "nccl_cuda",
    "ofed",
    "slurm",
    "torch",
    "torch_cuda",
]
"""What compatibility is about. `nccl_cuda` and `torch_cuda` are the CUDA versions that they were built for."""

Version: TypeAlias = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$", max_length=30)]
"""An upstream version: numbers and dots, in quotes, since YAML reads 13.0 as a number."""

PackageName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]+$", max_length=100)]
PackageVersion: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+:~-]*$", max_length=100)]
"""A Debian version, complete: a pin that leaves the revision open pins nothing."""

Packages: TypeAlias = dict[PackageName, PackageVersion]

CARRIES: dict[str, Component] = {
    "ceph-common": "ceph",
    "ceph-fuse": "ceph",
    "ceph-mds": "ceph",
    "ceph-mgr": "ceph",
    "ceph-mon": "ceph",
    "ceph-osd": "ceph",
    "datacenter-gpu-manager-4-core": "dcgm",
    "datacenter-gpu-manager-4-cuda13": "dcgm",
    "libnccl2": "nccl",
    "libnvidia-ml1": "driver",
    "nvidia-driver-cuda": "driver",
    "nvidia-fabricmanager": "fabric_manager",
    "nvidia-kernel-open-dkms": "driver",
    "nvidia-open": "driver",
    "nvidia-persistenced": "driver",
    "python3-torch": "torch",
    "slurm-client": "slurm",
    "slurmctld": "slurm",
    "slurmd": "slurm",
}
"""Packages that carry a component: their versions must begin with its version."""

PIN_EXPECTATIONS: dict[str, str] = {
    "pins.packages": "versions of the packages that the node must have, by name",
    "pins.held": "names of those packages, sorted",
    "pins.driver": "version of the GPU driver, on nodes with GPUs",
    "pins.cuda": "version of CUDA, on nodes with GPUs",
    "pins.nccl": "version of NCCL, on nodes with GPUs",
    "pins.kernel": "version of the kernel",
}
"""What pins add to a node's expectations."""


class PinSet(BaseModel):
    """One set of pins. A component that is null is not installed; one that is left out is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
    description: Annotated[str, StringConstraints(min_length=10)]
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    """Where the versions were read."""
    components: dict[Component, Version | None]
    packages: dict[Literal["all"] | Role, Packages]

    @property
    def digest(self) -> str:
        """The lock: SHA-256 of the components and packages in canonical JSON (RFC 8785). Words do not change it."""
        return digest(self.model_dump(mode="json", include={"components", "packages"}))

    def packages_of(self, node: Node) -> Packages:
        """What a node must have: the packages of all nodes and those of its roles."""
        found: Packages = dict(self.packages.get("all", {}))
        for role in node.roles:
            found |= self.packages.get(role, {})
        return dict(sorted(found.items()))

    def variables(self) -> dict[str, Any]:
        """Ansible's: `muster_pins` with `packages` by role, as the inventory's groups need them, and `components`."""
        return {"muster_pins": self.model_dump(mode="json", include={"components", "packages"})}

    def differing(self, installed: Mapping[str, str]) -> dict[str, str]:
        """The pinned packages that a machine or image has at another version, in words, by name; absent ones too."""
        wanted = {name: version for each in self.packages.values() for name, version in each.items()}
        return {
            name: f"{installed.get(name, 'absent')}, pinned at {version}"
            for name, version in sorted(wanted.items())
            if installed.get(name) != version
        }

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        wanted: dict[str, str] = {}
        for role, packages in self.packages.items():
            for name, version in packages.items():
                if wanted.setdefault(name, version) != version:
                    raise ValueError(f"{name} is pinned at {wanted[name]} and, for {role}, at {version}; choose one")
                component = CARRIES.get(name)
                pinned = self.components.get(component) if component else None
                if pinned and not _begins(version, pinned):
                    raise ValueError(f"{name} is pinned at {version}, but {component} at {pinned}; make them agree")
        if not wanted:
            raise ValueError("pins no package; a pin set without packages pins nothing")
        return self


def load_pins(name: str, folder: Path = PINS) -> PinSet:
    """The pin set of a name. Raises PolicyError with every problem in it, or with the names there are."""
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise PolicyError([f"pins: no pin set {name!r} in {folder}; there are: {', '.join(known) or 'none'}"])
    pins = read(folder / f"{name}.yaml", PinSet)
    if pins.name != name:
        raise PolicyError([f"{name}.yaml: name: {pins.name}, but the file is {name}.yaml; rename one of them"])
    return pins


def expectations_of(plan: ClusterPlan, node: Node, pins: PinSet) -> Expectations:
    """What spec and pins expect of a node: what controls compare with and what the node suite is sent."""
    found = expectations(plan, node)
    packages = pins.packages_of(node)
    found["pins.packages"] = {**packages}
    found["pins.held"] = [*packages]
    if node.gpus:
        found |= {
            f"pins.{each}": version for each in ("driver", "cuda", "nccl") if (version := pins.components.get(each))
        }
    if kernel := pins.components.get("kernel"):
        found["pins.kernel"] = kernel
    return found


def _begins(package: str, upstream: str) -> bool:
    """Whether a Debian version is of an upstream version: after the epoch, then at a dot, dash, plus or the end."""
    rest = package.rpartition(":")[2]
    return rest.startswith(upstream) and rest[len(upstream) : len(upstream) + 1] in ("", "-", "+", ".")
