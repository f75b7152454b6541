"""A whole lab: its images, network and machines, made and removed together."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spec.deployment import CertificateClass, Deployment
from spec.folders import state
from spec.plan import ClusterPlan
from spec.schema import FabricKind, MachineKind
from stacks.lab import access, cgroups, machines, model, network
from stacks.lab.process import CommandFailed

Say = Callable[[str], None]

ENGINE = "engine"
"""The part of a stack's state folder that is the engine's: it is needed until the stack itself is removed."""


async def up(
    stack: str,
    spec: Path,
    plan: ClusterPlan,
    images: Mapping[MachineKind, str],
    vendor: str | None,
    say: Say,
    only: Sequence[str] | None = None,
) -> Deployment:
    """Makes what is missing of a lab. Raises an ExceptionGroup with the failures of all machines that do not start.

    Args: `images` as `built` gives them.
    """
    require_root()
    if only:
        for name in only:
            plan.node(name)
    await network.create(model.network(stack, plan))
    say(f"network {model.namespace(stack)} stands")
    wanted = [node for node in plan.nodes if not only or node.name in only]
    for node in wanted:
        machines.way(node.name, node.machine)
    made = [model.machine(stack, node, images[node.machine], vendor) for node in wanted]
    async with asyncio.TaskGroup() as group:
        for each in made:
            group.create_task(_machine(each, say))
    found = deployment(stack, spec, plan, images)
    access.write(found.state / "deployment.json", found.model_dump_json(indent=2) + "\n")
    say(f"ssh -F {found.ssh_config} {plan.nodes[0].name}")
    return found


async def _machine(machine: model.Machine, say: Say) -> None:
    running = await machines.ensure(machine)
    say(f"{machine.name} runs as process {running.pid} at {machine.address.ip}")


async def down(stack: str) -> None:
    """Removes all of a lab, whatever state it is in and whether or not its spec still exists."""
    require_root()
    known = {each.name for each in model.machines_folder(stack).glob("*") if each.is_dir()}
    prefix = model.namespace(stack, "_").removesuffix("_")
    known |= {name.removeprefix(prefix) for name in await network.namespaces() if name.startswith(prefix)}
    # Virtual machines have no namespace of their own, and outlive a state folder that somebody removed.
    known |= cgroups.named(model.cgroup(stack, ""))
    await asyncio.gather(*(machines.remove(stack, name) for name in sorted(known)))
    await network.remove(stack)
    await asyncio.to_thread(_remove_files, state(stack))


def _remove_files(folder: Path) -> None:
    for each in folder.glob("*"):
        if each.name == ENGINE:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def require_root() -> None:
    """Raises CommandFailed where this process may not make namespaces and mounts."""
    if os.geteuid() != 0:
        raise CommandFailed("a lab makes namespaces, bridges and mounts · this user may not · run it as root")


def image_digests(plan: ClusterPlan) -> dict[MachineKind, str]:
    """The digest of the image that this checkout's recipes make, for each kind of machine in a plan."""
    from images import node
    from images.node import vm

    digests = {MachineKind.CONTAINER: node.digest, MachineKind.VM: vm.digest}
    kinds = {each.machine for each in plan.nodes}
    return {kind: digest() for kind, digest in digests.items() if kind in kinds}


async def built(plan: ClusterPlan, say: Say) -> dict[MachineKind, str]:
    """The digests of a plan's images, which are built where they are not in the cache.

    The node image is built for virtual machines too: their users and folders are its.
    """
    found = {MachineKind.CONTAINER: await node_image(say)}
    if any(node.machine is MachineKind.VM for node in plan.nodes):
        found[MachineKind.VM] = await vm_image(say)
    return found


async def node_image(say: Say) -> str:
    """The digest of the node image, which is built if it is not in the cache."""
    from images import node

    # The folder's name, not the recipe's digest now: the recipe may have been edited while this was built.
    return (await asyncio.to_thread(node.build, say)).parent.name


async def vm_image(say: Say) -> str:
    """The digest of the virtual machines' image, which is built if it is not in the cache."""
    from images.node import vm

    return (await asyncio.to_thread(vm.disk, say)).parent.name


async def vendor_repository(say: Say) -> str:
    """The digest of the vendor package repository, which is built if it is not in the cache."""
    from images import vendor

    return (await asyncio.to_thread(vendor.build, say)).name


def deployment(stack: str, spec: Path, plan: ClusterPlan, images: Mapping[MachineKind, str]) -> Deployment:
    """What the lab exports. Pure but for the state folder's place.

    Args: `images` as `image_digests` gives them.
    """
    simulated = [f"{kind} GPUs are simulated" for kind in sorted({n.gpus.model for n in plan.nodes if n.gpus})]
    if any(node.machine is MachineKind.CONTAINER for node in plan.nodes):
        simulated.append("machines are containers that share this computer's kernel")
    if any(node.machine is MachineKind.VM for node in plan.nodes):
        simulated.append("machines are virtual, and emulated where this computer has no working KVM")
    if plan.fabric_kind is FabricKind.TCP:
        simulated.append("rails carry TCP, not RDMA")
    elif any(each.rdma for node in plan.nodes for each in node.interfaces):
        simulated.append("RDMA is Soft-RoCE, in the kernel's software")
    return Deployment(
        name=plan.name,
        stack=stack,
        substrate=plan.spec.substrate,
        certificate_class=CertificateClass.LAB,
        spec=spec.resolve(),
        spec_digest=plan.digest,
        state=state(stack),
        ssh_config=access.config(stack),
        nodes=tuple(node.name for node in plan.nodes),
        images={node.name: model.own_digest(images[node.machine]) for node in plan.nodes if node.machine in images},
        simulated=tuple(simulated),
    )
