"""What a job does while its storage fails for real: a process of its own, in a mount namespace of its own.

python fault_scenario.py KIND MOUNTPOINT. Prints one JSON object: what each step of it came to.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from store_samples import found, save

from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.tier import Blob, Tier
from runtime.place import Place

LIBC = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2


def mount(at: Path, flags: int = 0, options: str = "") -> None:
    if LIBC.mount(b"muster", str(at).encode(), b"tmpfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")


def outcome(act: Callable[[], object]) -> str:
    """The name of the error, or what came of it."""
    try:
        return str(act())
    except CheckpointError as error:
        return type(error).__name__


def large(tier: Tier, step: int) -> None:
    data = os.urandom(24 << 20)
    tier.begin(step, Place()).write([Blob("w", "uint8", (len(data),), (0,), (len(data),), data)], {})
    tier.commit(step, Place(), 5)


def full(at: Path) -> dict[str, object]:
    mount(at, options="size=16m")
    with Tier(at / "checkpoints") as tier:
        save(tier, 1)
        failed = outcome(lambda: large(tier, 2))
        then = outcome(lambda: found(tier, 1))
        save(tier, 3)
        return {"save": failed, "earlier": then, "next": found(tier, 3), "steps": tier.steps(), "left": left(tier)}


def read_only(at: Path) -> dict[str, object]:
    mount(at)
    with Tier(at / "checkpoints") as tier:
        save(tier, 1)
        mount(at, MS_REMOUNT | MS_RDONLY)
        failed = outcome(lambda: save(tier, 2))
        then = outcome(lambda: found(tier, 1))
        mount(at, MS_REMOUNT)
        save(tier, 3)
        return {"save": failed, "earlier": then, "next": found(tier, 3), "steps": tier.steps()}


def gone(at: Path) -> dict[str, object]:
    """The mount is taken away, and only its empty folder is left on a disk that nobody meant."""
    mount(at)
    with Tier(at / "checkpoints") as tier:
        save(tier, 1)
        LIBC.umount2(str(at).encode(), MNT_DETACH)
        failed = outcome(lambda: save(tier, 2))
        return {"save": failed, "left": sorted(os.listdir(at))}  # noqa: PTH208


def denied(at: Path) -> dict[str, object]:
    at.chmod(0o755)
    (at / "checkpoints").mkdir()
    os.chown(at / "checkpoints", 65534, 65534)
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    with Tier(at / "checkpoints") as tier:
        save(tier, 1)
        (at / "checkpoints").chmod(0o500)
        failed = outcome(lambda: save(tier, 2))
        then = outcome(lambda: found(tier, 1))
        (at / "checkpoints").chmod(0o700)
        save(tier, 3)
        return {"save": failed, "earlier": then, "next": found(tier, 3), "steps": tier.steps()}


def stalled(at: Path) -> dict[str, object]:
    """A real disk that answers nothing: a frozen ext4. No signal ends a call on it; it thaws by itself after 60 s."""
    image = at.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(at)], check=True)
    thaw = subprocess.Popen(["sh", "-c", f"sleep 60; fsfreeze -u {at}"], start_new_session=True)
    steps, done = [0], threading.Event()

    def train() -> None:
        while not done.wait(0.001):
            steps[0] += 1

    threading.Thread(target=train, daemon=True).start()
    with Tier(at / "checkpoints", stall_s=60) as tier:
        save(tier, 1)
        subprocess.run(["fsfreeze", "-f", str(at)], check=True)
        tier._storage.stall_s = 1.0
        before, began = steps[0], time.monotonic()
        failed = [outcome(lambda turn=turn: save(tier, 2, turn)) for turn in (0, 1)]  # type: ignore[misc]
        trained, took_s = steps[0] - before, time.monotonic() - began
        then = outcome(lambda: found(tier, 1))
        subprocess.run(["fsfreeze", "-u", str(at)], check=True)
        os.killpg(thaw.pid, signal.SIGKILL)
        thaw.wait()
        tier._storage.stall_s = 60
        for turn in range(2, 100):
            if outcome(lambda turn=turn: save(tier, 3, turn)) != "StalledError":  # type: ignore[misc]
                break
        done.set()
        tier.sweep()
        return {
            "save": failed,
            "trained": trained > 100,
            "waited": took_s < 30,
            "earlier": then,
            "next": found(tier, 3),
            "steps": tier.steps(),
            "left": left(tier),
        }


def left(tier: Tier) -> list[str]:
    return [name for name in sorted(os.listdir(tier.folder)) if name.startswith(".tmp")]  # noqa: PTH208


if __name__ == "__main__":
    kind, where = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[kind](Path(where))) + "\n")
    sys.stdout.flush()
    os._exit(0)
