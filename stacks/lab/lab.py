"""A whole lab: its images, network and machines, made and removed together."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from spec.deployment import CertificateClass, Deployment
from spec.folders import state
from spec.plan import ClusterPlan
from spec.schema import FabricKind, MachineKind
from stacks.lab import access, container, model, network
from stacks.lab.process import CommandFailed

Say = Callable[[str], None]

ENGINE = "engine"
"""The part of a stack's state folder that is the engine's: it is needed until the stack itself is removed."""


async def up(
    stack: str,
    spec: Path,
    plan: ClusterPlan,
    image: str,
    vendor: str | None,
    say: Say,
    only: Sequence[str] | None = None,
) -> Deployment:
    """Makes what is missing of a lab. Raises an ExceptionGroup with the failures of all machines that do not start."""
    require_root()
    if only:
        for name in only:
            plan.node(name)
    await network.create(model.network(stack, plan))
    say(f"network {model.namespace(stack)} stands")
    machines = [model.machine(stack, node, image, vendor) for node in plan.nodes if not only or node.name in only]
    async with asyncio.TaskGroup() as group:
        for each in machines:
            group.create_task(_machine(each, say))
    found = deployment(stack, spec, plan)
    access.write(found.state / "deployment.json", found.model_dump_json(indent=2) + "\n")
    say(f"ssh -F {found.ssh_config} {plan.nodes[0].name}")
    return found


async def _machine(machine: model.Machine, say: Say) -> None:
    require_kind(machine)
    running = await container.ensure(machine)
    say(f"{machine.name} runs as process {running.pid} at {machine.address.ip}")


async def down(stack: str) -> None:
    """Removes all of a lab, whatever state it is in and whether or not its spec still exists."""
    require_root()
    known = {each.name for each in model.machines_folder(stack).glob("*") if each.is_dir()}
    prefix = model.namespace(stack, "_").removesuffix("_")
    known |= {name.removeprefix(prefix) for name in await network.namespaces() if name.startswith(prefix)}
    await asyncio.gather(*(container.remove(stack, name) for name in sorted(known)))
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


def require_kind(machine: model.Machine) -> None:
    """Raises LookupError for a kind of machine that the lab cannot make."""
    if machine.kind is not MachineKind.CONTAINER:
        raise LookupError(
            f"{machine.name} is declared as machine: {machine.kind.value} · the lab makes containers · "
            "set machine: container for its node group"
        )


async def node_image(say: Say) -> str:
    """The digest of the node image, which is built if it is not in the cache."""
    from images import node

    # The folder's name, not the recipe's digest now: the recipe may have been edited while this was built.
    return (await asyncio.to_thread(node.build, say)).parent.name


async def vendor_repository(say: Say) -> str:
    """The digest of the vendor package repository, which is built if it is not in the cache."""
    from images import vendor

    return (await asyncio.to_thread(vendor.build, say)).name


def deployment(stack: str, spec: Path, plan: ClusterPlan) -> Deployment:
    """What the lab exports. Pure but for the state folder's place."""
    simulated = [f"{kind} GPUs are simulated" for kind in sorted({n.gpus.model for n in plan.nodes if n.gpus})]
    if any(node.machine is MachineKind.CONTAINER for node in plan.nodes):
        simulated.append("machines are containers that share this computer's kernel")
    if plan.fabric_kind is FabricKind.TCP:
        simulated.append("rails carry TCP, not RDMA")
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
        simulated=tuple(simulated),
    )
