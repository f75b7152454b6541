"""The muster provider's resources, as a Pulumi program declares them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
from pydantic import BaseModel

from spec.deployment import Deployment
from stacks.lab import model


def _inputs(part: BaseModel) -> dict[str, Any]:
    return part.model_dump(mode="json")


class Image(pulumi.CustomResource):
    """The node image, the vendor's package repository and virtual machines' image of these digests, in the cache."""

    def __init__(
        self, name: str, node: str, vendor: str, vm: str | None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:lab:Image", name, {"node": node, "vendor": vendor, **({"vm": vm} if vm else {})}, opts)


class Network(pulumi.CustomResource):
    """A lab's namespace and bridges."""

    def __init__(self, name: str, network: model.Network, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("muster:lab:Network", name, _inputs(network), opts)


class Machine(pulumi.CustomResource):
    """One machine of a lab. `boot` is another after each start."""

    boot: pulumi.Output[str]
    address: pulumi.Output[str]

    def __init__(self, name: str, machine: model.Machine, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("muster:lab:Machine", name, {**_inputs(machine), "boot": None}, opts)


class Converge(pulumi.CustomResource):
    """A converge run over all nodes, repeated when roles, plan, pins or a machine's start differ."""

    summary: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        deployment: Deployment,
        playbook: Path,
        inputs: str,
        boots: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        given = {"deployment": _inputs(deployment), "playbook": str(playbook), "inputs": inputs, "boots": dict(boots)}
        super().__init__("muster:index:Converge", name, {**given, "summary": None}, opts)
