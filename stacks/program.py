"""The Pulumi program: from a spec to a cluster that stands and is converged."""

from collections.abc import Callable
from pathlib import Path

import pulumi

from policies import design
from policies.reading import PolicyError
from spec.deployment import Deployment
from spec.load import load
from spec.plan import ClusterPlan, derive
from spec.schema import MachineKind, Substrate
from stacks.converge import inputs_digest
from stacks.lab import lab, model
from stacks.resources import Converge, Image, Machine, Network

ROOT = Path(__file__).parents[1]


def spec_path(stack: str, configured: str | None) -> Path:
    """The spec of a stack: the configured one, from the checkout's root, or `clusters/STACK.yaml`."""
    path = ROOT / (configured or f"clusters/{stack}.yaml")
    if not path.is_file():
        raise pulumi.RunError(
            f"there is no spec for stack {stack} · {path} · name one: pulumi config set muster:spec clusters/lab.yaml"
        )
    return path


def program() -> None:
    """Declares the stack's cluster and exports it as `cluster`. Raises pulumi.RunError with what to do."""
    stack = pulumi.get_stack()
    path = spec_path(stack, pulumi.Config("muster").get("spec"))
    try:
        plan = derive(load(path))
        proofs = design.proofs(plan)
    except (ValueError, PolicyError) as wrong:
        raise pulumi.RunError(f"{wrong}\nnothing was changed") from None
    refused = [proof for proof in proofs if not proof.accepted]
    if refused:
        told = "".join(f"\n  {proof.id}: {proof.message}\n    {proof.advice}" for proof in refused)
        raise pulumi.RunError(f"the design does not hold · {path}{told}")
    if plan.spec.substrate not in SUBSTRATES:
        known = ", ".join(each.value for each in SUBSTRATES)
        raise pulumi.RunError(
            f"substrate {plan.spec.substrate.value} cannot be deployed yet · {path}: substrate · use one of: {known}"
        )
    deployment = SUBSTRATES[plan.spec.substrate](stack, path, plan)
    pulumi.export("cluster", deployment)


def lab_cluster(stack: str, path: Path, plan: ClusterPlan) -> pulumi.Output[dict[str, object]]:
    """A lab: images and network side by side, then all machines at once, then one converge run over them."""
    from images import node, vendor

    other = [each for each in plan.nodes if each.machine is MachineKind.HOST]
    if other:
        raise pulumi.RunError(
            f"{', '.join(each.name for each in other[:5])}: machine: {other[0].machine.value} · {path}: nodes · "
            "the lab makes containers and virtual machines: set machine: container, or vm"
        )
    digests = lab.image_digests(plan)
    images = Image("images", node.digest(), vendor.digest(), digests.get(MachineKind.VM))
    network = Network("network", model.network(stack, plan))
    standing = pulumi.ResourceOptions(depends_on=[images, network])
    machines = {
        each.name: Machine(each.name, model.machine(stack, each, digests[each.machine], vendor.digest()), standing)
        for each in plan.nodes
    }
    deployment = lab.deployment(stack, path, plan, digests)
    boots = {name: machine.boot for name, machine in machines.items()}
    playbook = (ROOT / (pulumi.Config("muster").get("playbook") or "roles/site.yml")).resolve()
    converged = Converge("converge", deployment, playbook, inputs_digest(plan, playbook.parent), boots)
    exported = deployment.model_dump(mode="json")
    return converged.id.apply(lambda _: exported)


SUBSTRATES: dict[Substrate, Callable[[str, Path, ClusterPlan], pulumi.Output[dict[str, object]]]] = {
    Substrate.LAB: lab_cluster,
}


def exported(value: object) -> Deployment:
    """The deployment of a stack's output `cluster`."""
    return Deployment.model_validate(value)
