"""Where Muster keeps what is not source: caches named by digest, and the state of each stack.

`MUSTER_HOME` moves both: to `$MUSTER_HOME/cache` and `$MUSTER_HOME/state`. Otherwise they follow the XDG Base
Directory Specification.
"""

import os
from pathlib import Path


def cache() -> Path:
    """Images, packages and the engine, shared by all stacks; whatever is in it can be made again."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def state(stack: str) -> Path:
    """One stack's disks, sockets, keys and ssh config."""
    return _folder("state", "XDG_STATE_HOME", ".local/state") / stack


def _folder(kind: str, variable: str, default: str) -> Path:
    if home := os.environ.get("MUSTER_HOME"):
        return Path(home).absolute() / kind
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / "muster"
