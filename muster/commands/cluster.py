"""Commands about whole clusters: up, down, converge, and the environment in which `pulumi` itself works."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from muster.commands.nodes import Json, Names, Stack, certification, files
from muster.commands.plan import read
from muster.console import Problem, document, progress, result, say
from muster.standing import DEFAULT_STACK, standing
from policies.exits import Exit
from spec.schema import Substrate

GIB = 1024**3
LAB_MEMORY_GIB = 6.0
"""What a lab of five containers uses at its peak, with room for the controller: seen 4.1 GiB."""
LAB_DISK_GIB = 15.0
"""Engine build, node image, vendor repository and machines' disks, with room to build them."""

Cluster = Annotated[str, typer.Argument(help="A cluster: clusters/NAME.yaml, and the name of its stack.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("converge")(converge)
    app.command("env")(env)
    app.command("where")(where)


def up(
    cluster: Cluster = DEFAULT_STACK,
    spec: Annotated[Path | None, typer.Option(help="The spec, where it is not clusters/NAME.yaml.")] = None,
    no_certify: Annotated[bool, typer.Option("--no-certify", help="Stop once the nodes are converged.")] = False,
    as_json: Json = False,
) -> int:
    """Stand a cluster up, converge it, examine and certify every node, write the report."""
    from stacks import lifecycle  # loads the engine's library, which most commands do without

    path = spec or Path("clusters") / f"{cluster}.yaml"
    made, proofs = read(path)
    if broken := [proof for proof in proofs if not proof.accepted]:
        raise Problem(
            "; ".join(f"{proof.id}: {proof.message}" for proof in broken),
            where=str(path),
            advice=f"muster plan {path} shows every proof; nothing was built",
            exit=Exit.USAGE,
        )
    if made.spec.substrate is Substrate.LAB:
        for line in lacking():
            say(line)
    try:
        with progress(f"standing {cluster} up") as show:
            deployment = lifecycle.up(cluster, path, show)
    except lifecycle.StackError as error:
        raise Problem(str(error), advice="mend it and run the same again: what stands is kept") from None
    tell = say if as_json else result
    tell(f"{cluster} stands: {len(deployment.nodes)} nodes, converged")
    done = None if no_certify else certification(cluster, [])
    code = done.exit if done else Exit.PASS
    if as_json:
        document(
            {
                "deployment": deployment.model_dump(mode="json"),
                "certificates": done.certificates() if done else None,
                "pool": done.pool() if done else None,
                "report": files(done.report) if done else None,
                "exit": code,
            }
        )
    elif done:
        done.show()
        result(f"next: muster status --stack {cluster} · ssh -F {deployment.ssh_config} {deployment.nodes[0]}")
    else:
        result(f"next: muster certify --stack {cluster}")
    return code


def lacking() -> list[str]:
    """What this machine lacks, and what the lab does without it. Raises Problem where the lab cannot run."""
    if os.geteuid() != 0:
        raise Problem(
            "the lab needs root: it makes network namespaces, bridges and mounts",
            advice="run it as root, or: sudo -E env PATH=$PATH muster up",
            exit=Exit.USAGE,
        )
    if not Path("/dev/fuse").exists():
        raise Problem("there is no /dev/fuse: compute nodes mount the filesystem with it", advice="modprobe fuse")
    found = []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if memory < LAB_MEMORY_GIB:
        found.append(
            f"this machine has {memory:.1f} GiB of memory, the lab may need {LAB_MEMORY_GIB:g}: it may be slow"
        )
    free = shutil.disk_usage(Path.home()).free / GIB
    if free < LAB_DISK_GIB:
        found.append(f"{free:.1f} GiB of disk are free, the first run may need {LAB_DISK_GIB:g}")
    return found


def down(cluster: Cluster = DEFAULT_STACK, as_json: Json = False) -> int:
    """Remove a cluster: machines, networks, disks, keys and certificates. Caches and reports stay."""
    from stacks import lifecycle

    try:
        with progress(f"taking {cluster} down") as show:
            lifecycle.destroy(cluster, show)
    except lifecycle.StackError as error:
        raise Problem(str(error)) from None
    if as_json:
        document({"stack": cluster, "stands": False})
    else:
        result(f"{cluster} is gone: nothing of it runs. next: make up CLUSTER={cluster}")
    return Exit.PASS


def converge(
    nodes: Names = None,
    stack: Stack = DEFAULT_STACK,
    check: Annotated[bool, typer.Option("--check", help="Change nothing, tell what would change.")] = False,
    as_json: Json = False,
) -> int:
    """Make nodes what the spec says, by Ansible. Repairs drift; certify afterwards."""
    from stacks.converge import ConvergeError
    from stacks.converge import converge as run

    cluster = standing(stack)
    names = [node.name for node in cluster.chosen(nodes or [])] if nodes else []
    try:
        with progress(f"converging {', '.join(names) or 'all nodes'}") as show:
            done = run(cluster.plan, cluster.deployment, show, check=check, limit=names)
    except ConvergeError as error:
        raise Problem(str(error)) from None
    if as_json:
        document(done.model_dump(mode="json"))
    else:
        for change in done.changes:
            result(f"{change.host}  {change.role} : {change.task}")
        for wrong in (*done.failures, *done.unreachable):
            result(f"{wrong.host}  failed at {wrong.role} : {wrong.task}: {wrong.text}")
        result(done.summary())
    if not done.holds:
        return Exit.ERROR
    return Exit.FAIL if check and done.changed_tasks else Exit.PASS


def env(stack: Stack = DEFAULT_STACK, as_json: Json = False) -> int:
    """Print what `pulumi` by hand needs: eval "$(muster env)"; pulumi preview."""
    from stacks import lifecycle

    try:
        variables = {**lifecycle.environment(stack), "PULUMI_STACK": stack}
    except lifecycle.StackError as error:
        raise Problem(str(error)) from None
    if as_json:
        document(variables)
    else:
        for name, value in variables.items():
            result(f"export {name}={shlex.quote(value)}")
    return Exit.PASS


def where(
    stack: Stack = DEFAULT_STACK,
    ssh_config: Annotated[bool, typer.Option("--ssh-config", help="Print only the ssh configuration's path.")] = False,
    as_json: Json = False,
) -> int:
    """Say where a standing cluster is and how its nodes are reached."""
    deployment = standing(stack).deployment
    if ssh_config:
        result(str(deployment.ssh_config))
    elif as_json:
        document(deployment.model_dump(mode="json"))
    else:
        result(f"spec       {deployment.spec}\nstate      {deployment.state}\nreports    {standing(stack).reports}")
        result(f"log in     ssh -F {deployment.ssh_config} {deployment.nodes[0]}")
    return Exit.PASS
