"""torch's flight recorder: which collectives each rank began, in which order, and which of them ended.

Each backend keeps the last ones in memory. In the files of all ranks, the one whose last collective has the lowest
number is the one that the others wait for.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from runtime.place import Place

KEPT = "2000"
"""Collectives that are kept: torch's own default, said for versions whose default is none."""


def prepare(
    folder: Path | None = None, place: Place | None = None, variables: MutableMapping[str, str] = os.environ
) -> None:
    """Has torch record collectives, and write them down where it gives up on one itself, before it ends the process: to
    `folder`, or to its own folder on the node. What is set already stays. Before the process group is made.
    """
    # torch gives the new name precedence; a user's old one must not be overruled by it.
    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in variables:
        variables.setdefault("TORCH_FR_BUFFER_SIZE", KEPT)
    if "TORCH_FR_DUMP_ON_TIMEOUT" not in variables:
        variables.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    if folder is not None and place is not None and "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" not in variables:
        variables.setdefault("TORCH_FR_DUMP_TEMP_FILE", str(folder / f"{place.attempt}-torch-rank-"))


def dumps() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """For each backend that may have recorded something, how to get it as JSON: without the stacks of each collective,
    for which torch first reads the symbols of its libraries, and others do not wait that long.
    """
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    # ProcessGroupNCCL has a recorder of its own; what torch 2.15 makes of "nccl" by default ("nccl2") and gloo do not.
    if native := getattr(c10d, "_dump_nccl_trace_json", None):
        yield "nccl", native
    if by_name := getattr(c10d, "_dump_fr_trace_json", None):
        for backend in ("nccl2", "gloo"):
            yield backend, partial(by_name, backend=backend)


def write(folder: Path, place: Place) -> tuple[list[Path], list[str]]:
    """Writes what each backend recorded. Returns the files, and why others could not be written. Never raises."""
    files, faults = [], []
    for backend, dump in dumps():
        try:
            trace = dump()
            if not json.loads(trace).get("entries"):
                continue
            file = folder / f"{place.attempt}-rank-{place.rank}.{backend}.json"
            file.write_bytes(trace)
            files.append(file)
        except Exception as error:
            faults.append(f"{backend}: {type(error).__name__}: {error}")
    return files, faults
