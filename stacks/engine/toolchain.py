"""Finds a Go that can build the engine, or fetches one, and prints its `go` command.

The Go module proxy serves every release of Go as a module, which it is asked for like the modules of the engine
itself. An archive counts only by the SHA-256 written here.
Usage: python -m stacks.engine.toolchain FOLDER   where one that is fetched is kept
"""

import hashlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from images.store import BuildError, Say, keep
from policies.exits import Exit

HERE = Path(__file__).parent
RELEASE = "1.26.8"
PROXY = "https://proxy.golang.org"
SILENCE_S = 60.0
"""Seconds without a byte after which a server is taken for gone."""


@dataclass(frozen=True)
class Archive:
    """A release of Go as the module proxy serves it: a zip file."""

    version: str
    """The module's version, as in v0.0.1-go1.26.8.linux-amd64."""
    sha256: str

    @property
    def path(self) -> str:
        """Where it is below a proxy's address."""
        return f"golang.org/toolchain/@v/{self.version}.zip"

    @property
    def root(self) -> str:
        """The folder inside that is GOROOT."""
        return f"golang.org/toolchain@{self.version}"


# Both were compared with Go 1.26.8's own installation: the same sources, but for what a module cannot hold (see
# `unpack`) and for GOTOOLCHAIN in go.env. amd64: bin/ and pkg/tool/ are the same files. arm64: they are, bit for bit,
# what those sources give when they are built as a release is (src/cmd/dist: -trimpath -ldflags=-w -gcflags=cmd/...=
# -dwarf=false, without cgo).
ARCHIVES = {
    "x86_64": Archive(
        f"v0.0.1-go{RELEASE}.linux-amd64", "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"
    ),
    "aarch64": Archive(
        f"v0.0.1-go{RELEASE}.linux-arm64", "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99"
    ),
}
"""By what `uname -m` says."""


def least(modules: Iterable[Path]) -> Version:
    """The oldest Go that can build all of some modules, by the `go` line of their go.mod."""
    asked = (re.search(r"^go (\S+)$", path.read_text(), re.MULTILINE) for path in modules)
    return max(Version(each[1]) for each in asked if each)


def installed(wanted: Version) -> Path | None:
    """The `go` on PATH, where it is no older than that."""
    command = shutil.which("go")
    if not command:
        return None
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    told = subprocess.run([command, "env", "GOVERSION"], env=local, capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+(?:\.\d+)+)", told.stdout)
    return Path(command) if found and Version(found[1]) >= wanted else None


def archive(machine: str) -> Archive:
    """The archive for a machine. Raises BuildError where none is pinned."""
    if machine not in ARCHIVES:
        raise BuildError(
            f"no Go for {machine} is pinned, only for {', '.join(ARCHIVES)} · {__file__} · "
            f"install Pulumi, or Go {RELEASE} or newer, and run this again"
        )
    return ARCHIVES[machine]


def proxy(setting: str | None) -> str:
    """The first address in a GOPROXY. Raises BuildError where it has none, as with `off`.

    One with a password in it is no such address: it would end up in messages.
    """
    if not setting:
        return PROXY
    for entry in re.split("[,|]", setting):
        if re.fullmatch(r"(https?|file)://[^@\s]+", entry.strip()):
            return entry.strip().rstrip("/")
    raise BuildError(
        f"no Go to build with, and nowhere to fetch it from · GOPROXY · set it to {PROXY}, or install Go {RELEASE} "
        "or newer, and run this again"
    )


def fetch(url: str, sha256: str, part: Path, say: Say) -> None:
    """Makes `part` the file of this digest; goes on where an earlier try broke off, as long as each try brings more.

    Raises BuildError. What is not as pinned is removed.
    """
    say(f"fetching {url}{' (going on)' if part.exists() else ''}")
    while _digest(part) != sha256:
        before = _size(part)
        try:
            whole = _more(url, part)
        except (OSError, http.client.HTTPException) as error:
            whole, wrong = False, str(error)
        else:
            wrong = "the answer broke off"
        if whole and (found := _digest(part)) != sha256:
            part.unlink()
            raise BuildError(
                f"not the file that is pinned: its SHA-256 is {found}, not {sha256} · {url} · it was removed; "
                "see what answers there in its place, then run this again"
            )
        if not whole and _size(part) <= before:
            raise BuildError(f"Go cannot be fetched: {wrong} · {url} · run this again, or install Go {RELEASE}")


def _more(url: str, part: Path) -> bool:
    """Adds what is missing to a file; whether the server gave all it has."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310 - see proxy
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_S) as answer, part.open("ab") as file:  # noqa: S310
            if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                file.truncate(0)
            start = file.seek(0, os.SEEK_END)
            shutil.copyfileobj(answer, file)
            length = answer.headers["Content-Length"]
            return length is None or file.tell() - start >= int(length)
    except urllib.error.HTTPError as error:
        # Asked for what comes after the end: everything is here.
        if have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True
        raise


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _digest(path: Path) -> str | None:
    if not path.exists():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(zipped: Path, root: str, into: Path) -> None:
    """Unpacks an archive and gives it what a module cannot hold, as the go command does that fetches one by itself.

    A module has no executable bits, and no go.mod in a folder below: these are called _go.mod.
    """
    with zipfile.ZipFile(zipped) as content:
        content.extractall(into)
    for pattern in ("bin/*", "pkg/tool/*/*"):
        for path in (into / root).glob(pattern):
            path.chmod(0o755)
    for path in list((into / root).rglob("_go.mod")):
        path.rename(path.with_name("go.mod"))


def fetched(wanted: Archive, server: str, folder: Path, say: Say) -> Path:
    """The `go` command of an archive, in a folder of its own below `folder` that appears whole or not at all."""
    target = folder / wanted.version

    def make(partial: Path, _: object) -> None:
        part = folder / f"{wanted.version}.zip.part"
        fetch(f"{server}/{wanted.path}", wanted.sha256, part, say)
        unpack(part, wanted.root, partial)
        part.unlink()

    return keep(target, make, say) / wanted.root / "bin" / "go"


def main(folder: Path) -> int:
    """Prints the command. What goes on is told on stderr. Returns the exit code: 0 or 3."""

    def say(line: str) -> None:
        print(f"engine: {line}", file=sys.stderr)  # noqa: T201

    wanted = least(HERE.glob("*/go.mod"))
    try:
        go = installed(wanted)
        if not go:
            say(f"no Go {wanted} or newer on PATH: building with Go {RELEASE} from the module proxy")
            go = fetched(archive(platform.machine()), proxy(os.environ.get("GOPROXY")), folder, say)
    except BuildError as error:
        say(str(error))
        return Exit.ERROR
    print(go)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
