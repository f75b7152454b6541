"""How the lab's machines are reached: one key for the user `muster`, host keys known beforehand, one ssh config."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spec.folders import state
from spec.schema import MachineKind
from stacks.lab.model import Machine, machines_folder, namespace

USER = "muster"
HOST_KEY = "ssh_host_ed25519_key"
CONNECT_S = {MachineKind.CONTAINER: 20, MachineKind.VM: 120}
"""How long a login may take to begin: an emulated machine computes its keys a hundred times slower on a busy host."""


def folder(stack: str) -> Path:
    """Where key, known hosts and config are."""
    return state(stack) / "ssh"


def config(stack: str) -> Path:
    """The ssh config with which `ssh -F CONFIG NODE` reaches each machine."""
    return folder(stack) / "config"


def make_key(path: Path, comment: str) -> str:
    """The public half of a key, made if it is missing. A half-written pair is made anew."""
    public = path.with_name(path.name + ".pub")
    if not public.exists():
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return public.read_text().strip()


def user_key(stack: str) -> str:
    """The public key that machines let in as `muster`. Blocks while another process makes it."""
    with locked(stack):
        return make_key(folder(stack) / "id_ed25519", f"muster-{stack}")


def publish(stack: str) -> None:
    """Writes config and known hosts for the machines that exist. Called after each of them comes or goes."""
    with locked(stack):
        found = list(_declared(stack))
        keys = {each.name: machines_folder(stack) / each.name / f"{HOST_KEY}.pub" for each in found}
        known = [f"{name} {' '.join(key.read_text().split()[:2])}" for name, key in keys.items() if key.exists()]
        write(folder(stack) / "known_hosts", "".join(f"{line}\n" for line in known))
        write(config(stack), ssh_config(stack, folder(stack), found))


def _declared(stack: str) -> Iterator[Machine]:
    for path in sorted(machines_folder(stack).glob("*/machine.json")):
        # One that another version of this program declared counts as none, as in `disk.declared`: it is made anew.
        with suppress(OSError, ValueError):
            yield Machine.model_validate_json(path.read_bytes())


def ssh_config(stack: str, where: Path, machines: list[Machine]) -> str:
    """The config's text. Pure."""
    hosts = "".join(
        f"Host {each.name}\n    HostName {each.address.ip}\n    HostKeyAlias {each.name}\n"
        f"    ConnectTimeout {CONNECT_S[each.kind]}\n"
        for each in machines
    )
    return f"""{hosts}Host *
    User {USER}
    IdentityFile {where / "id_ed25519"}
    IdentitiesOnly yes
    IdentityAgent none
    PasswordAuthentication no
    UserKnownHostsFile {where / "known_hosts"}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    ServerAliveInterval 15
    ServerAliveCountMax 4
    LogLevel ERROR
    ProxyCommand ip netns exec {namespace(stack)} nc %h %p
"""


@contextmanager
def locked(stack: str) -> Iterator[None]:
    """Lets one writer of this stack at a time change what all its machines share. Never held over an `await`."""
    folder(stack).mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder(stack) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=mode)
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)


def remove(stack: str) -> None:
    """Removes the stack's key and config."""
    shutil.rmtree(folder(stack), ignore_errors=True)
