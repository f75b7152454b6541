"""Runs the host's tools: arguments as lists, output bounded, nothing outliving its time."""

import asyncio
import contextlib
import shutil

TAIL = 2000
"""How many characters of what a failed tool said are worth showing."""


class CommandFailed(Exception):  # noqa: N818
    """A tool ended badly or not in time."""


async def run(*argv: str, stdin: str = "", timeout: float = 60) -> str:
    """What a tool printed. Raises CommandFailed, with what it said, where it fails, is missing or takes too long."""
    if not shutil.which(argv[0]):
        raise CommandFailed(f"{argv[0]} is not installed · on this machine · make setup installs what the lab needs")
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), timeout)
    except BaseException as stop:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(stop, TimeoutError):
            raise CommandFailed(f"{' '.join(argv[:6])} did not end within {timeout:g} s") from None
        raise
    if process.returncode:
        said = (err or out).decode(errors="replace").strip()[-TAIL:]
        raise CommandFailed(f"{' '.join(argv[:6])} ended with {process.returncode}: {said}")
    return out.decode(errors="replace")


async def try_run(*argv: str, timeout: float = 60) -> bool:
    """Whether a tool succeeded; for tidying up, where what is to be removed may be gone already."""
    try:
        await run(*argv, timeout=timeout)
    except CommandFailed:
        return False
    return True
