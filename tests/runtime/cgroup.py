"""A limit of memory for a process of a test."""

import os
from pathlib import Path

import pytest


class memory_cgroup:  # noqa: N801 – read as a function
    """A cgroup of version 1 or 2 with a memory limit in bytes; its path. Skips where none can be made."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __enter__(self) -> str:
        for parent, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.path = Path(parent) / f"muster-test-{os.getpid()}"
            try:
                self.path.mkdir()
                (self.path / name).write_text(str(self.limit))
            except OSError:
                continue
            return str(self.path)
        pytest.skip("no memory cgroup can be made here")

    def __exit__(self, *_: object) -> None:
        self.path.rmdir()
