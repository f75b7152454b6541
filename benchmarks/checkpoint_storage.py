"""Writing and reading a checkpoint's bytes, hashed and synced, against what dd gets from the same disk.

In turns, on fresh files: dd writes with O_DIRECT and syncs; the tier writes one rank's part and commits. dd reads with
O_DIRECT; the tier reads every piece into memory that is there already and checks its hash, past an emptied page cache.
The ratio is of the medians: 1 is dd's speed. Nothing is written but below FOLDER, and all of it is removed.

python benchmarks/checkpoint_storage.py [FOLDER] [MEBIBYTES]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.record import begin
from runtime.checkpoint.format import Manifest
from runtime.checkpoint.tier import Blob, Tier
from runtime.place import Place

PIECE = 32 << 20
TURNS = 5


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.monotonic()
    act()
    return time.monotonic() - started


def dd(*arguments: str) -> None:
    """Runs dd with blocks of 16 MiB."""
    subprocess.run(["dd", "bs=16M", *arguments], check=True, capture_output=True)


def blobs(state: memoryview) -> list[Blob]:
    """The state in pieces of 32 MiB, as large layers are."""
    pieces = [state[at : at + PIECE] for at in range(0, len(state), PIECE)]
    return [Blob(f"layer.{n}", "uint8", (len(data),), (0,), (len(data),), data) for n, data in enumerate(pieces)]


def forget(path: Path) -> None:
    """Takes a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def restore(tier: Tier, manifest: Manifest, into: memoryview) -> None:
    """Reads all pieces to where they are wanted."""
    tier.read_all(
        manifest, [(piece, into[n * PIECE : n * PIECE + piece.size]) for n, piece in enumerate(manifest.pieces)]
    )


def main() -> None:
    """Runs all in turns and prints the ratios of write and read: the lower one is the result's."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    size = (int(sys.argv[2]) if len(sys.argv) > 2 else 1024) << 20
    state = np.tile(np.random.default_rng(0).integers(0, 256, PIECE, dtype=np.uint8), size // PIECE)
    wanted = np.ones_like(state)
    took: dict[str, list[float]] = {"dd_write": [], "write": [], "dd_read": [], "read": []}
    run = begin("checkpoint_storage")
    with (
        tempfile.TemporaryDirectory(prefix=".muster-benchmark-", dir=folder) as name,
        Tier(Path(name) / "tier") as tier,
    ):
        plain = Path(name) / "plain"
        for turn in range(TURNS):
            took["dd_write"].append(
                seconds(lambda: dd("if=/dev/zero", f"of={plain}", f"count={size >> 24}", "oflag=direct", "conv=fsync"))
            )
            writer = tier.begin(turn, Place())
            started = time.monotonic()
            writer.write(blobs(state.data), {})
            manifest = tier.commit(turn, Place(), 1.0)
            took["write"].append(time.monotonic() - started)
            took["dd_read"].append(seconds(lambda: dd(f"if={plain}", "of=/dev/null", "iflag=direct")))
            forget(tier.folder / manifest.folder / manifest.parts[0].file)
            wanted[:] = 1
            started = time.monotonic()
            restore(tier, manifest, wanted.data)
            took["read"].append(time.monotonic() - started)
            if not np.array_equal(state, wanted):
                raise SystemExit("what was read is not what was written")
            tier.remove(turn)
            plain.unlink()
    speed = {name: round(size / statistics.median(each) / 1e9, 2) for name, each in took.items()}
    ratios = {each: round(speed[each] / speed[f"dd_{each}"], 2) for each in ("write", "read")}
    numbers = {
        "bytes": size,
        "ratios": ratios,
        "gb_per_s": speed,
        "seconds": {k: [round(s, 3) for s in v] for k, v in took.items()},
    }
    run.end(
        f"write {speed['write']} GB/s, dd {speed['dd_write']}: {ratios['write']}x; "
        f"read {speed['read']} GB/s, dd {speed['dd_read']}: {ratios['read']}x; the lower of the two",
        min(ratios.values()),
        numbers,
    )


if __name__ == "__main__":
    main()
