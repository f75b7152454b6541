"""Stands clusters up and takes them down: the Pulumi engine with this checkout's state, environment and program.

`pulumi` by hand does the same in the environment that `environment` gives.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from policies.drift import ResourceForecast
from spec.deployment import Deployment
from spec.folders import cache, state
from stacks.converge.alone import BusyError, end_left
from stacks.lab import access, lab

ROOT = Path(__file__).parents[1]
BACKEND = ROOT / ".pulumi-state"

PATIENCE_S = 1800.0
"""How long a run waits for another on the same stack: longer than any takes."""

OFFLINE = {
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    "PULUMI_SKIP_UPDATE_CHECK": "true",
}
"""The engine's settings under which it asks no server for anything, and keeps one copy of a stack's state."""

Say = Callable[[str, bool], None]
"""Takes a line for people, and whether it is worth keeping or only shows what goes on right now."""


class StackError(Exception):
    """What the engine, a resource or a machine failed at, for people."""


class Changes(BaseModel):
    """How many resources an operation changed, or a preview would, by what is done to them: create, update, …"""

    model_config = ConfigDict(frozen=True)

    counts: dict[str, int]

    @property
    def none(self) -> bool:
        """Whether everything is as declared."""
        return not any(count for what, count in self.counts.items() if what != "same")


def environment(stack: str) -> dict[str, str]:
    """The variables in which `pulumi` acts on this checkout's stacks; makes what they name.

    Builds the engine where none is installed: minutes, once, with its progress on stderr. Raises StackError.
    """
    BACKEND.mkdir(exist_ok=True)
    phrase = _passphrase(stack)
    home = cache() / "engine" / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.pathsep.join([str(engine()), str(ROOT / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]),
        "PULUMI_BACKEND_URL": f"file://{BACKEND}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(phrase),
        "PULUMI_HOME": str(home),
        **OFFLINE,
    }


def engine() -> Path:
    """The folder of the `pulumi` command."""
    install = ROOT / "stacks" / "engine" / "install"
    done = subprocess.run([str(install)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise StackError(f"no Pulumi engine · {install} ended with {done.returncode} · see what it says above")
    return Path(done.stdout.strip().splitlines()[-1])


def up(stack: str, spec: Path | None, say: Say) -> Deployment:
    """Makes the cluster what its spec says, and converges it.

    `spec` none: the one that the stack was set to, or clusters/STACK.yaml. What ended since the last time is found
    first: all machines of a lab have when this computer was restarted. Raises StackError, with all errors.
    """
    begun = _known(stack) and any(each.name != lab.ENGINE for each in state(stack).glob("*"))
    selected = _selected(stack, spec)
    if begun:
        _act(selected.refresh, stack, say, done={"delete": "has ended, and is made again"})
    done = _act(selected.up, stack, say, suppress_outputs=True)
    found = Deployment.model_validate(done.outputs["cluster"].value)
    access.write(found.state / "deployment.json", found.model_dump_json(indent=2) + "\n")
    return found


def configure(stack: str, key: str, value: str) -> None:
    """Sets one of the program's settings, as `pulumi config set` does. Raises StackError."""
    from pulumi import automation as auto

    _selected(stack, None).set_config(key, auto.ConfigValue(value=value))


def preview(stack: str, spec: Path | None, say: Say) -> Changes:
    """What `up` would change. Changes nothing."""
    return Changes(counts=_counts(_act(_selected(stack, spec).preview, stack, say, done=_WOULD).change_summary))


def refresh(stack: str, say: Say) -> Changes:
    """Looks at what really stands: a machine that ended is forgotten, so that `up` makes it again."""
    return Changes(counts=_counts(_act(_selected(stack, None).refresh, stack, say).summary.resource_changes or {}))


def look(stack: str, say: Say) -> tuple[ResourceForecast, ...]:
    """What a refresh would find of each resource. Changes nothing, not even the engine's own record."""
    found: dict[str, ResourceForecast] = {}

    def hear(event: Any) -> None:
        about = event.res_outputs_event or event.resource_pre_event
        if about and not str(about.metadata.type).startswith("pulumi:"):
            metadata = about.metadata
            operation = str(getattr(metadata.op, "value", metadata.op))
            kept = found.get(metadata.urn)
            # A refresh is announced before it is done: only what it came to counts.
            if kept is None or operation != "refresh":
                found[metadata.urn] = ResourceForecast(
                    urn=metadata.urn, name=_name(metadata.urn), kind=str(metadata.type), operation=operation
                )

    _act(_selected(stack, None).preview_refresh, stack, say, done=_WOULD, hear=hear)
    return tuple(found.values())


def destroy(stack: str, say: Say) -> None:
    """Removes the cluster, its stack and its state folder, also where they are half made or half gone."""
    if _known(stack):
        selected = _selected(stack, None)
        _act(selected.destroy, stack, say)
        selected.workspace.remove_stack(stack)
    _forget(stack)
    try:
        end_left(state(stack) / "ansible")
    except BusyError as busy:
        raise StackError(str(busy)) from None
    asyncio.run(lab.down(stack))
    shutil.rmtree(state(stack), ignore_errors=True)


def deployment(stack: str) -> Deployment:
    """The cluster that stands. Raises StackError where none does."""
    path = state(stack) / "deployment.json"
    try:
        return Deployment.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StackError(f"stack {stack} does not stand · {path} · muster up makes it") from None
    except ValueError as wrong:
        raise StackError(
            f"the deployment of stack {stack} cannot be read: {wrong} · {path} · muster up again"
        ) from None


def _selected(stack: str, spec: Path | None) -> Any:
    from pulumi import automation as auto  # slow to import, and most commands do without it

    variables = environment(stack)
    command = auto.PulumiCommand(root=str(Path(variables["PATH"].split(os.pathsep)[0]).parent))
    options = auto.LocalWorkspaceOptions(work_dir=str(ROOT), env_vars=variables, pulumi_command=command)
    try:
        selected = auto.create_or_select_stack(stack_name=stack, work_dir=str(ROOT), opts=options)
        if spec:
            selected.set_config("muster:spec", auto.ConfigValue(value=str(spec.resolve())))
    except auto.CommandError as failed:
        raise StackError(f"stack {stack} cannot be selected: {_last(str(failed))} · {BACKEND}") from None
    return selected


def _act(
    operation: Callable[..., Any],
    stack: str,
    say: Say,
    done: Mapping[str, str] | None = None,
    hear: Callable[[Any], None] = lambda _: None,
    **options: Any,
) -> Any:
    from pulumi import automation as auto

    _wait_for_other(stack, say)
    errors: list[str] = []

    def heard(event: Any) -> None:
        hear(event)
        for text, keep, wrong in lines(event, done or _DONE):
            if wrong:
                errors.append(text)
            say(text, keep)

    try:
        return operation(on_event=heard, color="never", **options)
    except auto.ConcurrentUpdateError:
        raise StackError(f"another run works on stack {stack} · {BACKEND} · wait for it, or end it") from None
    except auto.CommandError as failed:
        told = [each for each in dict.fromkeys(errors) if not each.startswith(_AFTERMATH)]
        raise StackError("\n".join(told) or _last(str(failed))) from None


def lines(event: Any, done: Mapping[str, str]) -> Iterator[tuple[str, bool, bool]]:
    """What to say of an engine event: text, whether to keep it, whether it is an error. Pure."""
    if event.resource_pre_event and event.resource_pre_event.metadata.op in _DOING:
        metadata = event.resource_pre_event.metadata
        if not _is_stack(metadata):
            yield f"{_name(metadata.urn)}: {_DOING[metadata.op]}", False, False
    elif event.res_outputs_event and event.res_outputs_event.metadata.op in done:
        metadata = event.res_outputs_event.metadata
        if not _is_stack(metadata):
            yield f"{_name(metadata.urn)}: {done[metadata.op]}", True, False
    elif event.diagnostic_event:
        found = event.diagnostic_event
        text = _TAGS.sub("", found.message).strip()
        about = f"{_name(found.urn)}: " if found.urn and "pulumi:pulumi:Stack" not in found.urn else ""
        if text and found.severity != "debug":
            yield f"{about}{text}", not found.ephemeral, found.severity == "error"


_AFTERMATH = ("update failed", "preview failed", "Resource monitor has terminated", "Preview failed: update failed")
"""What the engine says after the error that explains it."""

_TAGS = re.compile(r"<\{%.*?%\}>")
_DOING = {
    "create": "making",
    "update": "changing",
    "delete": "removing",
    "create-replacement": "making anew",
    "delete-replaced": "removing the old one",
    "refresh": "looking",
}
_DONE = {
    "create": "made",
    "update": "changed",
    "delete": "removed",
    "create-replacement": "made anew",
}
_WOULD = {what: f"to be {word}" for what, word in _DONE.items()}


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _is_stack(metadata: Any) -> bool:
    return str(metadata.type).startswith("pulumi:")


def _counts(summary: Any) -> dict[str, int]:
    return {str(getattr(what, "value", what)): int(count) for what, count in dict(summary).items()}


def _last(text: str) -> str:
    """The errors of an engine's output, or its end."""
    errors = [line.partition("error: ")[2] for line in text.splitlines() if "error: " in line]
    return "; ".join(dict.fromkeys(errors)) or text.strip()[-800:]


def _passphrase(stack: str) -> Path:
    """The file with the phrase that encrypts secrets in the stack's state: made once, read by nobody else."""
    path = state(stack) / lab.ENGINE / "passphrase"
    if not path.exists():
        if _known(stack):
            raise StackError(
                f"the passphrase of stack {stack} is gone, so its state cannot be read · {path} · put it back, "
                f"or remove what stands: python -m stacks.lab down {stack}, and its files in {BACKEND}"
            )
        access.write(path, secrets.token_urlsafe(32) + "\n")
    return path


def _known(stack: str) -> bool:
    """Whether the backend has the stack; a copy that the engine keeps of one that was removed is none."""
    found = (BACKEND / ".pulumi" / "stacks").glob(f"*/{stack}.json*")
    return any(path.name in (f"{stack}.json", f"{stack}.json.gz") for path in found)


def _forget(stack: str) -> None:
    """Removes what the engine keeps of a removed stack: copies, history and empty lock folders."""
    for folders in (f"backups/*/{stack}", f"history/*/{stack}", f"locks/*/*/{stack}"):
        for folder in (BACKEND / ".pulumi").glob(folders):
            shutil.rmtree(folder, ignore_errors=True)
    for path in (BACKEND / ".pulumi" / "stacks").glob(f"*/{stack}.json*"):
        path.unlink(missing_ok=True)


def _remove_dead_locks(stack: str) -> int | None:
    """Removes locks of engines on this machine that were ended before they could. Returns the id of one that runs."""
    running = None
    for path in (BACKEND / ".pulumi" / "locks").glob(f"**/{stack}/*.json"):
        try:
            lock = json.loads(path.read_text())
            process, host = int(lock["pid"]), lock["hostname"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another engine has just removed it, or is writing it
        if host != os.uname().nodename:
            continue
        if _is_engine(process):
            running = process
        else:
            path.unlink(missing_ok=True)
    return running


def _is_engine(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    name, _, rest = stat.partition("(")[2].rpartition(")")
    # Killed, it keeps its place and its name until its parent, or whoever inherits it, asks for it.
    return name.startswith("pulumi") and rest.split()[0] not in ("Z", "X")


def _wait_for_other(stack: str, say: Say) -> None:
    """Waits while another engine works on the stack: one that goes on after the command that began it was killed."""
    told = False
    until = time.monotonic() + PATIENCE_S
    while (process := _remove_dead_locks(stack)) and time.monotonic() < until:
        if not told:
            say(f"another run works on stack {stack} (process {process}): waiting for it", True)
        told = True
        time.sleep(1)
