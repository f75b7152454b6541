"""The four kinds of resource: a lab's images, its network and its machines, and the converge run over any cluster."""

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from images import node
from images.node import vm
from spec.deployment import Deployment
from stacks.converge import ConvergeError, Request, converge_apart
from stacks.lab import disk, lab, machines, model, network
from stacks.provider.kind import Kind, Outputs, Say


class Part(BaseModel):
    """Inputs of a resource: an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Images(Part):
    """Digests of the node image, of the vendor's package repository, and of the virtual machines' image if any."""

    node: model.Digest
    vendor: model.Digest
    vm: model.Digest | None = None


class Converge(Part):
    """What decides a converge run's outcome: each of these that differs is a reason to run again."""

    deployment: Deployment
    playbook: Path
    inputs: str
    """See `stacks.converge.inputs_digest`."""
    boots: dict[str, str]
    """The start of each machine: a machine that was started anew is converged anew."""


class ImageKind(Kind[Images]):
    """Images in the cache, which all stacks share: removed by nobody, made again where they are missing."""

    type_name: ClassVar[str] = "muster:lab:Image"
    inputs = Images

    @override
    def name(self, inputs: Images) -> str:
        return f"{inputs.node}-{inputs.vendor}"

    @override
    async def make(self, inputs: Images, say: Say) -> Outputs:
        made = {
            "node": await lab.node_image(lambda line: say(line, False)),
            "vendor": await lab.vendor_repository(lambda line: say(line, False)),
        }
        if inputs.vm:
            made["vm"] = await lab.vm_image(lambda line: say(line, False))
        for what, digest in made.items():
            if digest != getattr(inputs, what):
                raise LookupError(
                    f"the recipe of {what} was edited since this run began · images/{what} · run it again"
                )
        return {}

    @override
    async def read(self, inputs: Images, outputs: Outputs) -> tuple[Images, Outputs] | None:
        there = [node.root(inputs.node), disk.vendor_repository(inputs.vendor)]
        there += [vm.base(inputs.vm)] if inputs.vm else []
        return (inputs, outputs) if all(each.exists() for each in there) else None

    @override
    async def remove(self, inputs: Images) -> None:
        """Nothing: other stacks use the cache too."""


class NetworkKind(Kind[model.Network]):
    """A lab's namespace and bridges. Whatever else of the lab remains when it goes, goes with it."""

    type_name: ClassVar[str] = "muster:lab:Network"
    inputs = model.Network
    replaces: ClassVar[frozenset[str]] = frozenset({"stack"})

    @override
    def name(self, inputs: model.Network) -> str:
        return model.namespace(inputs.stack)

    @override
    async def make(self, inputs: model.Network, say: Say) -> Outputs:
        lab.require_root()
        await network.create(inputs)
        return {}

    @override
    async def read(self, inputs: model.Network, outputs: Outputs) -> tuple[model.Network, Outputs] | None:
        return (inputs, outputs) if await network.stands(inputs) else None

    @override
    async def remove(self, inputs: model.Network) -> None:
        await lab.down(inputs.stack)


class MachineKind(Kind[model.Machine]):
    """One machine. It is gone when its first process is, however that ended."""

    type_name: ClassVar[str] = "muster:lab:Machine"
    inputs = model.Machine
    replaces: ClassVar[frozenset[str]] = frozenset({"stack", "name", "kind", "image", "disk_gib"})
    adds: ClassVar[frozenset[str]] = frozenset({"boot", "address"})

    @override
    def name(self, inputs: model.Machine) -> str:
        return f"{inputs.stack}/{inputs.name}"

    @override
    async def make(self, inputs: model.Machine, say: Say) -> Outputs:
        lab.require_root()
        say("starting", False)
        return self._outputs(inputs, await machines.ensure(inputs))

    @override
    async def read(self, inputs: model.Machine, outputs: Outputs) -> tuple[model.Machine, Outputs] | None:
        running = machines.read(inputs.stack, inputs.name)
        found = disk.declared(disk.folder(inputs))
        if not running or not found or not await network.connected(found):
            return None
        return found, self._outputs(found, running)

    @override
    async def remove(self, inputs: model.Machine) -> None:
        await machines.remove(inputs.stack, inputs.name)

    def _outputs(self, inputs: model.Machine, running: machines.Running) -> Outputs:
        return {"boot": running.boot, "address": str(inputs.address.ip)}


class ConvergeKind(Kind[Converge]):
    """An Ansible run over all nodes. There is nothing to remove: the nodes go."""

    type_name: ClassVar[str] = "muster:index:Converge"
    inputs = Converge
    replaces: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[frozenset[str]] = frozenset({"summary"})

    @override
    def name(self, inputs: Converge) -> str:
        return f"{inputs.deployment.stack}/converge"

    @override
    async def make(self, inputs: Converge, say: Say) -> Outputs:
        request = Request(deployment=inputs.deployment, playbook=inputs.playbook, inputs=inputs.inputs)
        done = await converge_apart(request, say)
        if not done.holds:
            wrong = [
                f"{each.host}: {each.role} : {each.task}: {each.text}" for each in (*done.unreachable, *done.failures)
            ]
            raise ConvergeError("\n".join([done.summary(), *wrong[:10]]))
        return {"summary": done.summary()}

    @override
    async def read(self, inputs: Converge, outputs: Outputs) -> tuple[Converge, Outputs] | None:
        return inputs, outputs

    @override
    async def remove(self, inputs: Converge) -> None:
        """Nothing: the nodes go."""


KINDS: dict[str, Kind[BaseModel]] = {
    each.type_name: each  # type: ignore[misc]
    for each in (ImageKind(), NetworkKind(), MachineKind(), ConvergeKind())
}
