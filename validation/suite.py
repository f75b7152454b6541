"""Packs the node suite into one file that needs nothing on a node but Python 3.11 or newer.

It is a zipapp of `validation.node` and the distributions it imports, as the lock file pinned them into this
environment. Its digest depends on their content alone: entries are sorted, have one date, and are compiled without
anything of this machine in them. On a Python of another version the sources are used instead of the compiled files.
"""

import hashlib
import importlib.util
import io
import marshal
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache as computed_once
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

import validation
from spec.folders import cache

DISTRIBUTIONS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-testinfra", "nvidia-ml-py")
"""What `validation.node` imports, and what that imports in turn."""

NEEDLESS = (
    *("_pytest/assertion/rewrite.pyi", "packaging/_tokenizer_fuzz", "pynvml_utils/", "example.py"),
    *("testinfra/utils/", "testinfra/main.py", "testinfra/plugin.py"),
)
NEEDED_LEXERS = ("__init__", "_mapping", "diff", "python")
"""Of pygments' 250 lexers pytest imports these, and no other file of theirs is packed."""

MAIN = """import sys

if sys.version_info < (3, 11):
    sys.exit("the node suite needs Python 3.11 or newer, this is " + sys.version.split()[0])

from validation.node.session import main

main()
"""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every entry: the earliest that a zip file can have."""


def digest() -> str:
    """SHA-256 of the suite's file, hexadecimal: what certificates say it was examined with."""
    return hashlib.sha256(_packed()).hexdigest()


def build() -> Path:
    """The suite's file in the cache, `suite/DIGEST.pyz`; made where it is not there yet or is not whole."""
    path = cache() / "suite" / f"{digest()}.pyz"
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == path.stem:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".partial")
    with os.fdopen(descriptor, "wb") as file:
        file.write(_packed())
    Path(name).chmod(0o644)
    Path(name).replace(path)
    return path


@computed_once
def _packed() -> bytes:
    return pack(sources())


def sources() -> dict[str, bytes]:
    """Everything that is packed: content by path in the archive."""
    found = {"__main__.py": MAIN.encode()}
    root = Path(validation.__file__).parent
    for path in (root / "__init__.py", *sorted((root / "node").glob("*.py"))):
        found[f"validation/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    for name in DISTRIBUTIONS:
        found |= {path: content.read_bytes() for path, content in _files(name)}
    return found


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """A distribution's modules and its licence. Raises PackageNotFoundError where it is not installed."""
    for each in distribution(name).files or ():
        path = PurePosixPath(each)
        lexer = path.parts[:2] == ("pygments", "lexers") and path.stem not in NEEDED_LEXERS
        licence = path.parts[0].endswith(".dist-info") and "licen" in str(path).lower()
        if (path.suffix == ".py" or licence) and not lexer and not str(path).startswith(NEEDLESS):
            yield str(path), Path(str(each.locate()))


def pack(files: dict[str, bytes]) -> bytes:
    """A zip file of the files, each module also compiled. The same bytes for the same content and Python version."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in sorted((files | _compiled(files)).items()):
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=6)
    return out.getvalue()


def _compiled(files: dict[str, bytes]) -> dict[str, bytes]:
    """Compiled modules that Python takes without looking at their sources (PEP 552, unchecked hash)."""
    found = {}
    for path, content in files.items():
        if path.endswith(".py"):
            code = compile(content, path, "exec", dont_inherit=True, optimize=0)
            head = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little") + importlib.util.source_hash(content)
            # Version 2 has no back references, which depend on what else is alive in this process.
            found[f"{path}c"] = head + marshal.dumps(code, 2)
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
