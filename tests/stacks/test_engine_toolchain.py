"""Where a machine has no Go, one is fetched: the pinned one, whole, or none."""

import hashlib
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from packaging.version import Version

from images.store import BuildError
from stacks.engine import toolchain
from stacks.engine.toolchain import RELEASE, Archive, archive, fetched, installed, least, proxy

MODULE = "v0.0.1-go1.26.8.linux-amd64"
ROOT = f"golang.org/toolchain@{MODULE}"
FILES = {
    "bin/go": "#!/bin/sh\necho it runs\n",
    "bin/gofmt": "#!/bin/sh\n",
    "pkg/tool/linux_amd64/compile": "#!/bin/sh\n",
    "src/_go.mod": "module std\n",
    "src/cmd/_go.mod": "module cmd\n",
    "src/fmt/print.go": "package fmt\n" * 50,
}


@dataclass
class Server:
    """A module proxy that has one file; `script` says how it answers, request by request, and then it is well."""

    content: bytes
    script: list[str] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)
    """The ranges that were asked for."""
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append(wanted)
        how = self.script.pop(0) if self.script else "well"
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and how != "no ranges" else 0
        if start >= len(self.content) or how == "missing":
            request.send_error(404 if how == "missing" else 416)
            return
        rest = self.content[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        request.wfile.write({"break off": rest[: len(rest) // 2], "silence": b""}.get(how, rest))


@pytest.fixture
def zipped(tmp_path: Path) -> bytes:
    path = tmp_path / "go.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in FILES.items():
            made.writestr(f"{ROOT}/{name}", text)
    return path.read_bytes()


@pytest.fixture
def server(zipped: bytes) -> Iterator[Server]:
    made = Server(zipped)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made.url = f"http://127.0.0.1:{listening.server_port}"
        Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        listening.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "go"


@pytest.fixture
def pinned(zipped: bytes) -> Archive:
    return Archive(MODULE, hashlib.sha256(zipped).hexdigest())


@pytest.fixture
def get(server: Server, folder: Path, pinned: Archive) -> Callable[[], Path]:
    return partial(fetched, pinned, server.url, folder, print)


@pytest.fixture
def part(folder: Path) -> Path:
    """Where an interrupted download is."""
    folder.mkdir(parents=True)
    return folder / f"{MODULE}.zip.part"


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != ".lock"]


def test_a_fetched_go_runs_and_its_source_is_modules_again(get: Callable[[], Path], folder: Path) -> None:
    go = get()
    assert subprocess.run([go], capture_output=True, text=True, check=True).stdout == "it runs\n"
    root = folder / MODULE / ROOT
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and os.access(path, os.X_OK)} == {
        "bin/go",
        "bin/gofmt",
        "pkg/tool/linux_amd64/compile",
    }
    assert (root / "src/go.mod").read_text() == "module std\n"
    assert (root / "src/cmd/go.mod").read_text() == "module cmd\n"
    assert left(folder) == [MODULE]


def test_it_is_fetched_once(get: Callable[[], Path], server: Server) -> None:
    assert get() == get()
    assert len(server.asked) == 1


def test_a_file_that_is_not_the_pinned_one_is_refused_and_nothing_of_it_stays(
    get: Callable[[], Path], server: Server, folder: Path
) -> None:
    server.content = server.content[:-1] + b"?"
    with pytest.raises(BuildError, match=r"not the file that is pinned.*http://127.*run this again"):
        get()
    assert not any(name == MODULE or name.endswith(".part") for name in left(folder))
    assert not list(folder.rglob("bin"))


@pytest.mark.parametrize("breaks", [1, 3])
def test_a_download_that_breaks_off_goes_on_where_it_was(get: Callable[[], Path], server: Server, breaks: int) -> None:
    server.script = ["break off"] * breaks
    get()
    asked = [int((each or "bytes=0-")[6:-1]) for each in server.asked]
    assert len(asked) == breaks + 1
    assert asked == sorted(set(asked))


def test_an_interrupted_download_is_gone_on_with_by_the_next_run(
    get: Callable[[], Path], server: Server, part: Path
) -> None:
    part.write_bytes(server.content[:100])
    get()
    assert server.asked == ["bytes=100-"]


def test_a_server_that_knows_no_ranges_gives_all_of_it_again(
    get: Callable[[], Path], server: Server, part: Path
) -> None:
    part.write_bytes(server.content[:100])
    server.script = ["no ranges"]
    get()
    assert len(server.asked) == 1


def test_what_was_downloaded_whole_is_not_asked_for_again(get: Callable[[], Path], server: Server, part: Path) -> None:
    part.write_bytes(server.content)
    get()
    assert server.asked == []


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_part_of_something_else_is_refused_and_the_next_run_is_well(
    get: Callable[[], Path], server: Server, part: Path, size: int
) -> None:
    part.write_bytes(b"?" * size)
    with pytest.raises(BuildError, match="not the file that is pinned"):
        get()
    assert get().exists()


@pytest.mark.parametrize("trouble", ["missing", "silence"])
def test_a_server_that_gives_nothing_is_an_error_that_keeps_what_there_is(
    get: Callable[[], Path], server: Server, part: Path, trouble: str
) -> None:
    part.write_bytes(server.content[:100])
    server.script = [trouble]
    with pytest.raises(BuildError, match=r"cannot be fetched.*http://127.*run this again, or install Go"):
        get()
    assert part.stat().st_size == 100


def test_a_machine_for_which_no_go_is_pinned_is_told_so() -> None:
    with pytest.raises(
        BuildError, match=r"no Go for riscv64 is pinned, only for x86_64, aarch64 .* install Pulumi, or"
    ):
        archive("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_is_fetched_can_build_the_engine(machine: str) -> None:
    modules = [*Path(toolchain.__file__).parent.glob("*/go.mod")]
    assert {path.parent.name for path in modules} == {"cli", "language"}
    assert Version(RELEASE) >= least(modules)
    assert RELEASE in archive(machine).path
    assert len(archive(machine).sha256) == 64


def test_the_oldest_go_that_serves_is_the_newest_that_any_module_asks_for(tmp_path: Path) -> None:
    for name, line in {"a": "go 1.9", "b": "go 1.26.6", "c": "go 1.26"}.items():
        (tmp_path / name).write_text(f"module x\n\n{line}\n\nrequire y v1.99.0\n")
    assert least(tmp_path.iterdir()) == Version("1.26.6")


@pytest.mark.parametrize(
    ("version", "serves"),
    [
        ("go1.26.6", True),
        ("go1.26.10", True),
        ("go1.27rc1", True),
        ("go2.0", True),
        ("go1.26.8 X:nodwarf5", True),
        ("go1.26.5", False),
        ("go1.26", False),
        ("go1.26rc3", False),
        ("go1.9.7", False),
        ("devel +b7a85e0003", False),
        ("", False),
    ],
)
def test_a_go_on_path_serves_where_it_is_no_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, serves: bool
) -> None:
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\n[ "$GOTOOLCHAIN $*" = "local env GOVERSION" ] && echo "{version}"\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert installed(Version("1.26.6")) == (go if serves else None)


@pytest.mark.parametrize(
    ("setting", "server"),
    [
        (None, "https://proxy.golang.org"),
        ("", "https://proxy.golang.org"),
        ("https://goproxy.example/x/,direct", "https://goproxy.example/x"),
        ("direct|https://a.example|https://b.example", "https://a.example"),
        ("file:///srv/go", "file:///srv/go"),
    ],
)
def test_go_comes_from_where_its_modules_do(setting: str | None, server: str) -> None:
    assert proxy(setting) == server


@pytest.mark.parametrize("setting", ["off", "direct", "https://me:secret@goproxy.example", "ftp://goproxy.example"])
def test_where_no_server_may_be_asked_none_is_and_no_password_is_shown(setting: str) -> None:
    with pytest.raises(BuildError, match=r"nowhere to fetch it from · GOPROXY · ") as told:
        proxy(setting)
    assert "secret" not in str(told.value)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bytes, pinned: Archive) -> None:
    """A machine without Go whose module proxy is a folder."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GOPROXY", f"off,file://{tmp_path}/proxy")
    monkeypatch.setattr(toolchain, "ARCHIVES", {"x86_64": pinned})
    served = tmp_path / "proxy" / pinned.path
    served.parent.mkdir(parents=True)
    served.write_bytes(zipped)


@pytest.mark.usefixtures("bare")
def test_the_answer_is_one_line_and_what_goes_on_is_told_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert toolchain.main(folder) == 0
    told = capsys.readouterr()
    assert told.out == f"{folder / MODULE / ROOT}/bin/go\n"
    assert "engine: fetching file://" in told.err


@pytest.mark.usefixtures("bare")
def test_where_no_go_can_be_had_the_exit_code_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "mips")
    assert toolchain.main(folder) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "no Go for mips" in told.err
