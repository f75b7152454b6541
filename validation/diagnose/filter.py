"""All patterns of all rules, compiled into one filter that the cache keeps: compiling takes seconds, loading none."""

import contextlib
import hashlib
import os
import platform
import secrets
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import hyperscan

from spec.folders import cache
from validation.diagnose.rule import Rule


def compiled(rules: Sequence[Rule], first_only: frozenset[int]) -> hyperscan.Database:
    """`first_only`: the numbers of rules of which one hit in each chunk is enough. A hit's id is its rule's number."""
    expressions, ids, flags = [], [], []
    for number, rule in enumerate(rules):
        for pattern in rule.patterns:
            # What stands at the beginning of a line for a rule comes behind a launcher's prefix in the file.
            expressions.append(pattern.removeprefix("^").encode())
            ids.append(number)
            once = hyperscan.HS_FLAG_SINGLEMATCH if number in first_only else 0
            flags.append(hyperscan.HS_FLAG_PREFILTER | hyperscan.HS_FLAG_MULTILINE | once)
    kept = _kept(repr((version("hyperscan"), platform.machine(), expressions, ids, flags)))
    with contextlib.suppress(OSError, hyperscan.error):  # not there, or of a processor that it does not fit
        loaded = hyperscan.loadb(kept.read_bytes(), hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
        return loaded
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=expressions, ids=ids, elements=len(ids), flags=flags)
    with contextlib.suppress(OSError):
        _keep(kept, hyperscan.dumpb(database))
    return database


def _kept(key: str) -> Path:
    return cache() / "diagnose" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.filter"


def _keep(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{secrets.token_hex(4)}")
    beside.write_bytes(raw)
    os.replace(beside, path)  # noqa: PTH105
