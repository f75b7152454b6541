"""How the engine is built: by the Go that was found or fetched, whole or not at all, and nothing else stays."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "stacks" / "engine"
GO = """#!/bin/bash
# Notes how it was called; builds programs that only name themselves, and says where the SDK is.
echo "$1 $GOTOOLCHAIN ${GOROOT:-none} ${GOPATH:-none} ${GOCACHE:-none} ${XDG_CONFIG_HOME:-none}" >>"$NOTES"
[[ -n ${GOPATH:-} ]] && mkdir -p "$GOPATH"
package=${*: -1}
case $1 in
list) echo "$SDK" ;;
build)
    [[ $package == "${BROKEN:-}" ]] && exit 1
    while [[ $1 != -o ]]; do shift; done
    printf '#!/bin/sh\\necho built\\n' >"$2/${package##*/}" && chmod +x "$2/${package##*/}"
    ;;
esac
"""
CLI = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
Start = Callable[..., "subprocess.Popen[str]"]
Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "home" / "cache"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A Go that the machine has."""
    return tmp_path / "usr" / "bin" / "go"


@pytest.fixture
def fetched(cache: Path) -> Path:
    """A Go that was fetched."""
    return cache / "go" / "v0" / "bin" / "go"


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> Start:
    """Starts a copy of the script with this Go as the one that toolchain.py answers."""
    root = tmp_path / "checkout"
    shutil.copytree(ENGINE, root / "stacks" / "engine")
    sdk = tmp_path / "sdk"
    for name in ("cmd/pulumi-language-python-exec", "dist/pulumi-resource-pulumi-python"):
        (sdk / "python" / name).parent.mkdir(parents=True)
        (sdk / "python" / name).write_text("#!/bin/sh\n")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$*" = "-m stacks.engine.toolchain $CACHE/go" ] && echo "$ANSWER"\n')
    python.chmod(0o755)

    def run(go: Path, home: str | None = None, **more: str) -> "subprocess.Popen[str]":
        go.parent.mkdir(parents=True, exist_ok=True)
        go.write_text(GO)
        go.chmod(0o755)
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path / "person"),
            "MUSTER_HOME": home or str(cache.parent),
            "NOTES": str(tmp_path / "notes"),
            "SDK": str(sdk),
            "CACHE": str(cache),
            "ANSWER": str(go),
            "GOROOT": "/usr/lib/go-1.19",
        }
        script = [str(root / "stacks/engine/install"), "--build-only"]
        pipe = subprocess.PIPE
        return subprocess.Popen(script, env=env | more, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)

    return run


@pytest.fixture
def install(start: Start) -> Install:
    def run(*args: Path, **options: str) -> "subprocess.CompletedProcess[str]":
        process = start(*args, **options)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


def notes(tmp_path: Path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "notes").read_text().splitlines()]


def test_an_engine_is_built_once_and_found_the_next_time(install: Install, go: Path, tmp_path: Path) -> None:
    first, second = install(go), install(go)
    assert first.returncode == 0, first.stderr
    assert second.stdout == first.stdout
    assert len(notes(tmp_path)) == 3
    assert {path.name for path in Path(first.stdout.strip()).iterdir() if os.access(path, os.X_OK)} == {
        "pulumi",
        "pulumi-language-python",
        "pulumi-language-python-exec",
        "pulumi-resource-pulumi-python",
    }


def test_a_go_that_the_machine_has_keeps_its_own_folders(install: Install, go: Path, tmp_path: Path) -> None:
    assert install(go, GOPATH=str(tmp_path / "mine")).returncode == 0
    assert {tuple(each[1:]) for each in notes(tmp_path)} == {
        ("local", "/usr/lib/go-1.19", str(tmp_path / "mine"), "none", "none")
    }
    assert go.exists()
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize("home", [None, "./home"])
def test_a_go_that_was_fetched_is_gone_with_all_it_made_once_the_engine_is_built(
    install: Install, fetched: Path, cache: Path, tmp_path: Path, home: str | None
) -> None:
    done = install(fetched, home=home)
    assert done.returncode == 0, done.stderr
    for _, toolchain, root, *folders in notes(tmp_path):
        assert (toolchain, root) == ("local", "none")
        assert all(folder.startswith(f"{cache}/go/") for folder in folders)
    assert [path.name for path in cache.iterdir()] == ["engine"]
    assert not (tmp_path / "person").exists()


@pytest.mark.parametrize("broken", [CLI, "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"])
def test_a_build_that_fails_leaves_no_engine_and_what_the_next_one_goes_on_with(
    install: Install, fetched: Path, cache: Path, broken: str
) -> None:
    failed = install(fetched, BROKEN=broken)
    assert failed.returncode
    assert failed.stdout == ""
    assert [path.name for path in (cache / "engine").iterdir()] == [".lock"]
    assert (cache / "go" / "path").exists()
    assert install(fetched).returncode == 0


def test_without_any_go_nothing_is_built(install: Install, go: Path, cache: Path) -> None:
    failed = install(go, CACHE="/elsewhere")  # so that the stand-in for toolchain.py fails
    assert failed.returncode
    assert failed.stdout == ""
    assert [path.name for path in (cache / "engine").iterdir()] == [".lock"]


def test_a_second_build_waits_for_the_first(start: Start, go: Path, cache: Path, tmp_path: Path) -> None:
    (cache / "engine").mkdir(parents=True)
    with (cache / "engine" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = start(go)
        assert second.stderr
        assert "another build is running" in second.stderr.readline()
        assert not (tmp_path / "notes").exists()
    second.communicate(timeout=60)
    assert second.returncode == 0
