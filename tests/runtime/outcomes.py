"""What a job has told in its logs, and what its checkpoints hold."""

import json
import re
from pathlib import Path
from typing import Any

from runtime.checkpoint.tier import Tier


def events(log: str) -> list[dict[str, Any]]:
    """The events that a rank has told so far, as JSON lines: the last line may be half of one."""
    return [json.loads(line) for line in log.rpartition("\n")[0].splitlines() if line.startswith("{")]


def of(log: str, event: str) -> list[dict[str, Any]]:
    """Those of one name."""
    return [each for each in events(log) if each["event"] == event]


def ended(log: str) -> str:
    """The line in which the job says what it came to."""
    (found,) = re.findall(r"^end .*$", log, re.MULTILINE)
    return str(found)


def contents(saved: Path, step: int) -> tuple[dict[str, str], list[Any]]:
    """What the checkpoint of a step holds, every byte of it verified: the hash of each piece (weights, optimizer,
    random state) by name, and each rank's own values. Raises as `Tier.verify`."""
    with Tier(saved) as tier:
        manifest = tier.verify(step)
    hashes = {f"{piece.name}@{piece.offset}": piece.hash for piece in manifest.pieces}
    return hashes, [part.values for part in manifest.parts]
