"""What a rank that stops tells the agent that started it: why, in the file in which torchrun's agents look for it.

An exit code does not say whether a stop was meant for the job or came of a change of its members: where an agent joins
or leaves, workers are stopped by SIGTERM, and the other agents' workers stop with them.
"""

import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from runtime.exits import Exit

VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""torchrun sets it for each worker."""

REASONS = "reasons"


def account(step: int, reasons: Collection[str], environment: Mapping[str, str] = os.environ) -> None:
    """Writes down why this rank stopped after `step`, where there is an agent that reads it. Never raises.

    A file that cannot be written leaves the agent with the code alone.
    """
    if not environment.get(VARIABLE):
        return
    path = Path(environment[VARIABLE])
    told = {"message": f"stopped after step {step}: {', '.join(reasons)}", "timestamp": int(time.time())}
    with contextlib.suppress(OSError):
        aside = path.with_name(f"{path.name}.tmp")
        aside.write_text(json.dumps(told | {REASONS: list(reasons)}))
        aside.replace(path)


def of_members(failures: Collection[Any]) -> bool:
    """Whether all these workers (torchrun's ProcessFailure) stopped only because an agent had its own workers stop."""
    return bool(failures) and all(
        each.exitcode == Exit.RESUMABLE_STOP
        and isinstance(each.error_file_data, Mapping)
        and each.error_file_data.get(REASONS) == ["SIGTERM"]
        for each in failures
    )
