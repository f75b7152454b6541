"""KVM is used where a kernel was seen to boot on it, and nowhere else."""

import os
from pathlib import Path

import pytest

from stacks.lab.accelerator import Accelerator, Proof, accelerator

BOOTS = "echo '[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)'"
HANGS = "exec sleep 30"
ABORTS = "echo 'kvm.c:3183: kvm_buf_set_msrs: Assertion failed.'; exit 134"
SAYS_NOTHING = "exit 0"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Asks a QEMU that does what is told on this computer, whose /dev/kvm is a file."""
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    kernel, device, qemu = tmp_path / "vmlinuz", tmp_path / "kvm", tmp_path / "qemu"
    kernel.write_bytes(b"kernel")
    device.touch()

    def ask(does: str, version: str = "7.2", limit_s: float = 20, on: Path = device) -> Proof:
        qemu.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit 0\necho asked >>{tmp_path}/count\n{does}\n'
        )
        qemu.chmod(0o755)
        return accelerator(kernel, str(qemu), on, limit_s)

    ask.kernel, ask.times = kernel, lambda: (tmp_path / "count").read_text().count("asked")
    return ask


def test_a_kernel_that_gets_as_far_as_its_missing_disk_proves_kvm(asked):
    assert asked(BOOTS).accelerator is Accelerator.KVM


@pytest.mark.parametrize("does", [ABORTS, SAYS_NOTHING, "exit 1"])
def test_an_emulator_that_ends_without_a_booted_kernel_proves_nothing(asked, does):
    assert asked(does).accelerator is Accelerator.TCG


def test_a_guest_that_hangs_is_ended_and_is_no_proof(asked):
    found = asked(HANGS, limit_s=0.5)
    assert found.accelerator is Accelerator.TCG
    assert "within 0.5 s" in found.why


def test_where_there_is_no_device_nothing_is_started(asked, tmp_path):
    assert asked(BOOTS, on=tmp_path / "none").accelerator is Accelerator.TCG
    assert not (tmp_path / "count").exists()


def test_the_answer_is_kept_until_qemu_or_kernel_are_others(asked):
    assert asked(ABORTS) == asked(BOOTS)
    assert asked.times() == 1
    assert asked(BOOTS, version="9.1").accelerator is Accelerator.KVM
    asked.kernel.write_bytes(b"another kernel")
    assert asked(ABORTS, version="9.1").accelerator is Accelerator.TCG
    assert asked.times() == 3


def test_an_answer_that_was_half_written_is_asked_for_again(asked, tmp_path):
    asked(BOOTS)
    (kept,) = (tmp_path / "home/cache/lab/accelerator").glob("*.json")
    os.truncate(kept, 10)
    assert asked(ABORTS).accelerator is Accelerator.TCG
