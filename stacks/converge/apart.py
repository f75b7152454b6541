"""The converge run in a process of its own, for callers that have threads: Ansible forks, threads do not survive that.

The request is one JSON document on standard input, the answer JSON lines on standard output.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from spec.deployment import Deployment
from stacks.converge.result import Converged
from stacks.converge.run import KEPT, ConvergeError, Say

LINE = 64 * 1024 * 1024
"""Bytes of the longest line: all notes of a result, each character of them written as six, fit in it twice."""


class Request(BaseModel):
    """What to run. `inputs`, where given, must be what the run would work from now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deployment: Deployment
    playbook: Path
    inputs: str | None = None
    check: bool = False
    limit: tuple[str, ...] = ()


async def converge_apart(request: Request, say: Say) -> Converged:
    """As `converge`, in another process, which is ended when this is cancelled. Raises ConvergeError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "stacks.converge"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE,
        cwd=Path(__file__).parents[2],
        env={key: value for key, value in os.environ.items() if key in KEPT or key.startswith(("MUSTER_", "XDG_"))},
    )
    try:
        answer = await _answer(process, request, say)
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await asyncio.shield(process.wait())
    if "converged" in answer:
        return Converged.model_validate(answer["converged"])
    raise ConvergeError(answer.get("error") or f"the converge run ended with {process.returncode} and without a word")


async def _answer(process: asyncio.subprocess.Process, request: Request, say: Say) -> dict[str, Any]:
    if not process.stdin or not process.stdout:
        raise ConvergeError("the converge run has no pipes")
    process.stdin.write(request.model_dump_json().encode())
    process.stdin.close()
    async for line in process.stdout:
        message: dict[str, Any] = json.loads(line)
        if "say" not in message:
            return message
        say(message["say"], message["keep"])
    return {}
