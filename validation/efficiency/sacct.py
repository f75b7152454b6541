"""Asks Slurm's `sacct`: bounded in time and size, without a shell, and so that no name can pass for something else."""

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from validation.efficiency.accounting import COLUMNS, Accounting, AccountingError, of_fields

TIMEOUT_S = 300.0
MOST_BYTES = 512 << 20
"""Of accounting: about two million jobs."""

ASKED = (*COLUMNS, "JobName")


def ask(since: datetime, until: datetime, users: Sequence[str] = (), timeout_s: float = TIMEOUT_S) -> Accounting:
    """Jobs that ran between two times, each time that they ran. Raises AccountingError.

    Times are asked for and given in UTC: by TZ for the question, since the epoch in the answer (Slurm 22.05 takes no
    seconds since the epoch in a question). The delimiter is random: a job's name cannot hold it.
    """
    delimiter = f"<{secrets.token_hex(16)}>"
    whom = [f"--user={','.join(users)}"] if users else ["--allusers"]
    argv = [
        "sacct",
        *whom,
        "--allocations",
        "--duplicates",
        "--noheader",
        "--parsable",
        f"--delimiter={delimiter}",
        f"--starttime={since.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        f"--endtime={until.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        f"--format={','.join(ASKED)}",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SACCT_")}
    told = _said(argv, {**kept, "TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}, timeout_s)
    return of_fields(told.decode("utf-8", "replace"), ASKED, delimiter)


def read(path: Path) -> str:
    """The text of a file of accounting. Raises AccountingError."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as refused:
        raise AccountingError(f"{path}: {refused.strerror} · give a file of sacct's output") from None
    if len(text) > MOST_BYTES:
        raise AccountingError(f"{path}: more than {MOST_BYTES >> 20} MiB · ask sacct for a shorter time")
    return text.decode("utf-8", "replace")


def _said(argv: Sequence[str], environment: dict[str, str], timeout_s: float) -> bytes:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise AccountingError(
            "there is no sacct here · run this where Slurm is, or give a file with --accounting"
        ) from None
    except OSError as refused:
        raise AccountingError(f"sacct does not start: {refused.strerror} · give a file with --accounting") from None
    try:
        out, wrong = _collected(process, time.monotonic() + timeout_s)
        code = process.wait(timeout=5)
    except (TimeoutError, subprocess.TimeoutExpired):
        raise AccountingError(f"sacct gave no end within {timeout_s:g} s · ask for a shorter time") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code:
        raise AccountingError(
            f"sacct ended with {code}: {wrong.decode(errors='replace').strip()[:300]} · mend that first"
        )
    return out


def _collected(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """Both streams. Raises TimeoutError, or AccountingError past the limit of size."""
    assert process.stdout is not None  # noqa: S101 - both were asked for
    assert process.stderr is not None  # noqa: S101
    told = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for stream in told:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, 1 << 20)
                if not part:
                    selector.unregister(key.fd)
                told[key.fd] += part
            if sum(map(len, told.values())) > MOST_BYTES:
                raise AccountingError(f"sacct said more than {MOST_BYTES >> 20} MiB · ask for a shorter time")
    out, wrong = told.values()
    return bytes(out), bytes(wrong)
