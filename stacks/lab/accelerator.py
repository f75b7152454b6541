"""Whether this computer can run virtual machines on its processor: proved by a kernel that boots, and remembered."""

import fcntl
import hashlib
import platform
import subprocess
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from spec.folders import cache
from stacks.lab.access import write

QEMU = "qemu-system-x86_64"
DEVICE = Path("/dev/kvm")
LIMIT_S = 45.0
"""How long the proof may take: 2 s where it succeeds on an idle computer. Where guests hang, it ends here, once."""
LAST_WORDS = b"Unable to mount root fs"
"""What a kernel says that has started everything and has no disk."""


class Accelerator(StrEnum):
    """What runs a guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"
    """QEMU's emulation: everywhere, and ten to twenty times slower."""


class Proof(BaseModel):
    """What a computer was found to be able to do."""

    model_config = ConfigDict(frozen=True)

    accelerator: Accelerator
    why: str


def accelerator(kernel: Path, qemu: str = QEMU, device: Path = DEVICE, limit_s: float = LIMIT_S) -> Proof:
    """What virtual machines run on here. Blocks, at most `limit_s` where this computer was never asked.

    An open /dev/kvm proves nothing: there are hosts on which every guest hangs at its first change of mode.
    Raises OSError without QEMU.
    """
    kept = cache() / "lab" / "accelerator" / f"{_identity(kernel, qemu)}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not device.exists():
        return Proof(accelerator=Accelerator.TCG, why=f"there is no {device}")
    with (kept.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return Proof.model_validate_json(kept.read_bytes())
        except (OSError, ValueError):
            found = _prove(kernel, qemu, limit_s)
        write(kept, found.model_dump_json() + "\n")
    return found


def _identity(kernel: Path, qemu: str) -> str:
    """The name of all that decides the outcome: host kernel, processor, QEMU and guest kernel."""
    version = subprocess.run([qemu, "--version"], capture_output=True, check=True, timeout=30).stdout
    processor = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    stable = [line for line in processor.splitlines() if not line.startswith(("cpu MHz", "bogomips"))]
    digest = hashlib.sha256()
    for part in (version, " ".join(platform.uname()).encode(), "\n".join(stable).encode(), kernel.read_bytes()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:32]


def _prove(kernel: Path, qemu: str, limit_s: float) -> Proof:
    """Boots a kernel without a disk: one that works gives up at once, and with `panic=-1` ends the emulator."""
    command = [
        *(qemu, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-serial", "stdio", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Proof(accelerator=Accelerator.TCG, why=f"a kernel did not start on KVM within {limit_s:g} s")
    if LAST_WORDS in done.stdout:
        return Proof(accelerator=Accelerator.KVM, why="a kernel started on KVM")
    last = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
    return Proof(accelerator=Accelerator.TCG, why=f"a kernel did not start on KVM: {last[0][:300] if last else ''}")
