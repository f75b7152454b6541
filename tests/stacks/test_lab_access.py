"""Keys, host keys and the ssh config."""

import asyncio
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stacks.lab import access, container, disk, machines, vm
from stacks.lab.disk import Layer
from stacks.lab.model import Machine, machines_folder


def _declare(machine: Machine) -> str:
    where = machines_folder(machine.stack) / machine.name
    host = access.make_key(where / access.HOST_KEY, machine.name)
    access.write(where / "machine.json", machine.model_dump_json())
    return host


def test_ssh_takes_only_the_machines_own_host_key(state_home: Path, gpu_machine: Machine) -> None:
    host = _declare(gpu_machine)
    access.publish("test")
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(access.config("test")), "gpu-0"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert f"hostname {gpu_machine.address.ip}" in shown
    assert "user muster" in shown
    assert "stricthostkeychecking true" in shown
    assert "hostkeyalias gpu-0" in shown
    assert "proxycommand ip netns exec muster-test nc %h %p" in shown
    known = (access.folder("test") / "known_hosts").read_text().splitlines()
    assert known == [f"gpu-0 {' '.join(host.split()[:2])}"]


def test_a_machine_that_is_gone_is_no_longer_known(state_home: Path, gpu_machine: Machine) -> None:
    _declare(gpu_machine)
    access.publish("test")
    (machines_folder("test") / "gpu-0" / "machine.json").unlink()
    access.publish("test")
    assert "gpu-0" not in access.config("test").read_text()
    assert (access.folder("test") / "known_hosts").read_text() == ""


@pytest.mark.parametrize("other", ['{"stack": "test", "colour": "red"}', "{", ""])
def test_a_machine_of_another_version_of_the_program_hinders_no_other(
    state_home: Path, gpu_machine: Machine, other: str
) -> None:
    _declare(gpu_machine)
    access.write(machines_folder("test") / "control-0/machine.json", other)
    access.publish("test")
    assert "Host gpu-0\n" in access.config("test").read_text()
    assert "control-0" not in access.config("test").read_text()


def test_a_machine_whose_start_was_cut_off_is_there_only_once_it_answers(
    gpu_machine: Machine, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as declared, and may be minutes from its first login."""
    running = machines.Running(pid=1, boot="b", creation="c")
    did: list[str] = []

    async def yes(_: Machine) -> bool:
        return True

    async def answers(*_: object) -> None:
        did.append("answers")

    monkeypatch.setattr(machines, "read", lambda *_: running)
    monkeypatch.setattr(disk, "declared", lambda _: gpu_machine)
    monkeypatch.setattr("stacks.lab.network.connected", yes)
    monkeypatch.setattr(access, "publish", lambda _: did.append("published"))
    monkeypatch.setattr(machines, "_answers", answers)
    assert asyncio.run(machines.ensure(gpu_machine)) == running
    assert did == ["published", "answers"]


def test_keys_are_made_once_and_readable_by_nobody_else(state_home: Path) -> None:
    first = access.user_key("test")
    assert access.user_key("test") == first
    key = access.folder("test") / "id_ed25519"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(access.folder("test").stat().st_mode) == 0o700


def test_a_half_made_key_pair_is_made_anew(state_home: Path) -> None:
    key = access.folder("test") / "id_ed25519"
    access.write(key, "half")
    assert access.user_key("test").startswith("ssh-ed25519 ")
    assert "PRIVATE KEY" in key.read_text()


def test_a_layers_folders_take_mode_and_owner_from_what_they_cover(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    (lower / "srv/private").mkdir(parents=True)
    (lower / "srv/private").chmod(0o750)
    upper.mkdir()
    Layer(upper, lower).write("srv/private/new/file", "text\n", mode=0o600)
    assert stat.S_IMODE((upper / "srv/private").stat().st_mode) == 0o750
    assert stat.S_IMODE((upper / "srv/private/new/file").stat().st_mode) == 0o600
    assert (upper / "srv/private/new/file").read_text() == "text\n"


def _modes(folder: Path) -> dict[str, int]:
    found = {"/": stat.S_IMODE(folder.stat().st_mode)}
    return found | {
        str(each.relative_to(folder)): stat.S_IMODE(each.stat().st_mode)
        for each in folder.rglob("*")
        if not each.is_symlink()
    }


def _filled(machine: Machine, where: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    container.fill(machine, where)
    return _modes(where / "upper")


def _identity(machine: Machine, where: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    found: dict[str, int] = {}
    monkeypatch.setattr(vm, "_tool", lambda *_: found.update(_modes(where / "identity")))
    vm._identity(machine, where)
    return found


@pytest.mark.parametrize("made", [_filled, _identity])
def test_what_a_machine_reads_has_the_same_modes_whatever_the_umask(
    made: Callable[[Machine, Path, pytest.MonkeyPatch], dict[str, int]],
    state_home: Path,
    gpu_machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine whose root folder is closed to all but root lets nobody log in."""
    image = tmp_path / "image"
    (image / "etc").mkdir(parents=True)
    (image / "etc/passwd").write_text("muster:x:900:900::/home/muster:/bin/bash\n")
    monkeypatch.setattr("images.node.root", lambda _: image)
    found = []
    for mask in (0o022, 0o077):
        where = disk.folder(gpu_machine.model_copy(update={"name": f"gpu-{mask}"}))
        where.mkdir(parents=True)
        access.write(where / "creation", "x\n")
        before = os.umask(mask)
        try:
            found.append(made(gpu_machine, where, monkeypatch))
        finally:
            os.umask(before)
    assert found[0] == found[1]
    assert found[0]["/"] == 0o755
    assert found[0]["etc/ssh/ssh_host_ed25519_key"] == 0o600
